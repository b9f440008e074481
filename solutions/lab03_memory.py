# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 03: Memory
#
# **20 points.** A model of 7 billion parameters is a file of 14 GB, and training it takes 112 GB before the
# first activation is stored. In this lab you find every one of these bytes, and get rid of some: you write
# the ledger, the optimizer that needs the fp32 copies, the loss scaling that must agree across ranks, and
# checkpointing, which trades memory for time. Your code is graded on its values and on its **bytes**.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | the ledger: parameters and model states | 1 |
# | 2 | mixed precision: fp32 sums, Adam with master weights, loss scaling on several ranks | 8 |
# | 3 | activations: how many bytes a block keeps; checkpointing as an autograd function | 7 |
# | 4 | FLOPs of a block, and the length at which attention takes over | 2 |
# | 5 | questions | 2 |
#
# *You should have read* notebooks 05 and 10. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs the same tests with further sizes, ranks and mistakes to look
#   for.
# - All tests run on the CPU, so bytes are the same everywhere. `LiveBytes` follows every tensor from birth
#   to end; `saved_bytes` tells what autograd keeps for the backward pass. Try them in cells of your own:
#   `with LiveBytes() as live: ...`, then `live.now()` and `live.peak()`.
# - **You may not call** what you build: `torch.optim`, `torch.amp`, `torch.utils.checkpoint` and
#   `torch.utils.flop_counter` are the tests' oracles. Everything else of torch is yours.
#
# **Conventions.** *Bytes* are bytes: 1 GB = 10^9 bytes, 1 GiB = 2^30 bytes. The *model states* (模型状态)
# cost **16 bytes a parameter** here: bf16 weights and bf16 gradients, 2 each; an fp32 *master weight* (FP32
# 主权重), a first and a second *moment* (一阶动量, 二阶动量) of Adam, 4 each. (You will meet 18, with fp32
# gradients in place of bf16 ones, and 20, with fp32 gradients besides the bf16 ones.)
#
# In all formulas: B batch, S sequence, H `hidden`, N `heads`, K `kv_heads`, D = H/N, F `ffn`, V
# `vocab_size`, L `layers`.

# %% shared="imports"
import math
from dataclasses import asdict, replace
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import bfloat16, float32
from torch.utils.flop_counter import FlopCounterMode

from utils import check, launch
from utils.checks.by_hand import watched, written_without
from utils.memory import LiveBytes, saved_bytes
from utils.models import Block, Transformer, TransformerConfig


def run_alone(probe, *args):
    """`launch` in one fresh process, without ranks, on the CPU."""
    return launch(probe, *args, ranks=None, device="cpu", timeout=20)


def sizes_of(config: TransformerConfig) -> SimpleNamespace:
    """The fields of a TransformerConfig as plain numbers: what your functions get as `sizes`."""
    return SimpleNamespace(**asdict(config))


def fill(*shape: int, salt: int = 0) -> torch.Tensor:
    """Numbers between -1 and 1 that depend on the element and on `salt`, exact in bfloat16.

    >>> fill(4).tolist()
    [-0.875, 0.125, 0.75, -0.375]
    """
    i = torch.arange(math.prod(shape))
    return (((37 * i + 11 * i * i * (salt + 1) + 23 * salt) % 31 - 14) / 16).reshape(shape)


def start_weights(shapes, salt: int) -> list[torch.Tensor]:
    """bf16 weights between 0.75 and 1.25."""
    return [(1 + fill(*shape, salt=salt) / 4).to(bfloat16) for shape in shapes]


def changing_grads(shapes, salt: int, step: int, size: float = 1.0) -> list[torch.Tensor]:
    """fp32 gradients of a step, between -size and size."""
    return [size * fill(*shape, salt=salt + 2 + step) for shape in shapes]


def torch_adam(kind, weights, grads_of_step, steps: int, **options) -> list[torch.Tensor]:
    """For oracles: fp32 copies of the weights, stepped by torch's own optimizer `kind`; the results in bf16."""
    masters = [torch.nn.Parameter(weight.float()) for weight in weights]
    optimizer = kind(masters, **{"weight_decay": 0.0, **options})
    for step in range(steps):
        for master, grad in zip(masters, grads_of_step(step), strict=True):
            master.grad = grad
        optimizer.step()
    return [master.detach().to(bfloat16) for master in masters]


def overflows(pattern, ranks: int) -> list[list[str]]:
    """By step and rank "inf", "-inf", "nan" or ""; in `pattern` a step is None or (rank, what overflows there)."""
    return [[what[1] if what and what[0] == rank else "" for rank in range(ranks)] for what in pattern]


def torch_factors(table: list[list[str]], factor: float, interval: int) -> list[float]:
    """For oracles: the factor after each step of torch's GradScaler, in one process with all ranks' gradients."""
    weight, factors = torch.nn.Parameter(torch.zeros(len(table[0]))), []  # an element a rank
    optimizer = SimpleNamespace(param_groups=[{"params": [weight]}], step=lambda: None)  # gradients alone matter
    scaler = torch.amp.GradScaler("cpu", init_scale=factor, growth_interval=interval)
    for bad in table:
        scaler.scale(weight.sum()).backward()
        weight.grad += torch.tensor([float(what or 0) for what in bad])
        scaler.step(optimizer)
        scaler.update()
        weight.grad = None
        factors.append(scaler.get_scale())
    return factors


def factor_mistakes(now: float, bad: object, interval: int) -> dict[str, float]:
    """What a wrong factor after a step looks like, where it was `now` before and `bad` says what overflowed."""
    if bad:
        return {"it was not halved after the overflow": now, "an overflow never makes it grow": 2 * now}
    return {
        f"it doubles after {interval} good steps in a row": now,
        "it grew too early; an overflow, and a doubling, start the count anew": 2 * now,
        "it was halved without an overflow": now / 2,
    }


ORACLES = ("torch/optim/", "torch/amp/", "torch/utils/checkpoint.py", "torch/utils/flop_counter.py", "utils/models/")
ORACLES += ("utils/memory/", "torch/nn/modules/")


def written_by_hand(files: list[str], what: str, forbidden: tuple[str, ...] = ORACLES) -> None:
    """CheckFailed where one of the `forbidden` files ran."""
    written_without(files, forbidden, what)


# %% [markdown]
# # Part 1. The ledger
#
# ## ledger
#
# `ledger(sizes)`: the model states of a Transformer in **bytes**, as a dictionary with the keys
# `"weights"`, `"gradients"`, `"master"`, `"exp_avg"` and `"exp_avg_sq"` (the names torch's Adam uses for
# the two moments). Weights and gradients are bf16, the rest fp32. `sizes` has the fields of
# `TransformerConfig`.
#
# The model (`utils.models.Transformer`) has these parameters; a *Linear* layer `a -> b` is a matrix of a x
# b, and b biases if `sizes.bias`:
#
# - token embedding V x H, and positions `max_len` x H;
# - each of L blocks: two LayerNorms of 2H; Linears `q_proj` H -> H, `k_proj` and `v_proj` H -> K*D,
#   `o_proj` H -> H; a *feed-forward* (前馈网络, FFN) of two Linears H -> F and F -> H, or, if
#   `sizes.gated`, of three, H -> F twice and F -> H;
# - a last LayerNorm of 2H; an output matrix H x V, never with biases. If `sizes.tied`, it **is** the token
#   embedding: one tensor, one gradient, one master.
#
# *Example*, V = 10, H = 8, L = 1, N = K = 2, F = 32, `max_len` 4, with biases, not gated, tied: 80 + 32
# embeddings, 32 for the norms of the block, 288 attention, 552 FFN, 16 for the last norm: 1000 parameters,
# so `{"weights": 2000, "gradients": 2000, "master": 4000, "exp_avg": 4000, "exp_avg_sq": 4000}`.
#
# *Size:* about 10 lines.

# %% solution="ledger"
def ledger(sizes: SimpleNamespace) -> dict[str, int]:
    ### BEGIN SOLUTION
    h, f = sizes.hidden, sizes.ffn
    kv = sizes.kv_heads * (h // sizes.heads)
    linears = [(h, h), (h, h), (h, kv), (h, kv), (h, f), (f, h)] + [(h, f)] * sizes.gated
    block = sum(a * b + b * sizes.bias for a, b in linears) + 2 * 2 * h
    vocabulary = sizes.vocab_size * h * (1 if sizes.tied else 2)
    numel = vocabulary + sizes.max_len * h + sizes.layers * block + 2 * h
    half, full = 2 * numel, 4 * numel
    return {"weights": half, "gradients": half, "master": full, "exp_avg": full, "exp_avg_sq": full}
    ### END SOLUTION


# %% test="ledger_bytes" points=1
WIDTHS = {"weights": 2, "gradients": 2, "master": 4, "exp_avg": 4, "exp_avg_sq": 4}


def probe_ledger(configs):
    return watched(lambda: [ledger(sizes_of(config)) for config in configs])


def parameters_of(config):
    with torch.device("meta"):  # a model with shapes and without memory
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


def other_models(config):
    """What a slip would make of this model: sentence -> the config that it mistakes it for."""
    return {
        "the tied matrix is in it twice": replace(config, tied=False),
        "the output matrix is not tied here, and it is missing": replace(config, tied=True),
        "the biases are missing": replace(config, bias=False),
        "there are no biases here": replace(config, bias=True),
        "k_proj and v_proj are narrower than H here": replace(config, kv_heads=config.heads),
        "a gated feed-forward has three matrices": replace(config, gated=False),
        "this feed-forward has two matrices": replace(config, gated=True),
        "only one block was counted": replace(config, layers=1),
        "F is not 4H here": replace(config, ffn=4 * config.hidden),
    }


def ledger_mistakes(config, numel, width):
    h = config.hidden
    counts = {sentence: parameters_of(other) for sentence, other in other_models(config).items()}
    counts["the positions are missing"] = numel - config.max_len * h
    counts["the LayerNorms are missing"] = numel - (4 * config.layers + 2) * h
    counts["the last LayerNorm is missing"] = numel - 2 * h
    return {sentence: width * count for sentence, count in counts.items()} | {
        "that is the number of parameters, not bytes": numel,
        "4 bytes each; weights and gradients are bf16 in this ledger": 4 * numel,
        "2 bytes each; this one is fp32": 2 * numel,
        "bytes are asked for, not GB": width * numel / 1e9,
        "bytes are asked for, not GiB": width * numel / 2**30,
    }


def verdict_ledger(configs):
    results, files = run_alone(probe_ledger, configs).value
    written_by_hand(files, "ledger")
    for got, config in zip(results, configs, strict=True):
        got, numel = check.answer(got, "ledger"), parameters_of(config)
        for key, width in WIDTHS.items():
            check.has_number(got, key, "ledger")
            mistakes = partial(ledger_mistakes, config, numel, width)
            check.count(got[key], width * numel, f'ledger["{key}"]', "bytes", mistakes)


example = TransformerConfig(vocab_size=10, hidden=8, layers=1, heads=2, max_len=4)
verdict_ledger([example, replace(example, tied=False, layers=3)])
### BEGIN HIDDEN TESTS
llama = TransformerConfig(
    vocab_size=32000, hidden=4096, layers=32, heads=32, ffn=11008, gated=True, tied=False, bias=False, max_len=2048
)
gqa = TransformerConfig(vocab_size=50, hidden=48, layers=5, heads=6, kv_heads=2, ffn=100, gated=True, max_len=9)
verdict_ledger([replace(gqa, gated=False), replace(gqa, kv_heads=6), gqa, replace(gqa, tied=False, bias=False), llama])
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. Mixed precision
#
# bfloat16 (BF16) has the range of fp32 and 8 significant bits: next to 1 the numbers are 1/128 apart above
# and 1/256 below. A sum that grows past 256 no longer sees a 1, and a weight of 1 does not see an update of
# 0.001. So what is *added to many times* is kept in fp32, and bf16 is for computing.
#
# ## accumulate
#
# *Gradient accumulation* (梯度累积): a large batch as many *micro-batches* (微批次), gradients added up.
# `accumulate(params, sums)` is called after the backward pass of each micro-batch. `params` is a list of
# bf16 parameters, `sums` a list of fp32 tensors of the same shapes, which begin with zeros.
#
# Add every `p.grad` onto its sum, **in fp32 and in place**, then set `p.grad` to `None`, so that the next
# backward pass starts anew and no bf16 sum lives on. A parameter that this micro-batch did not use has
# `p.grad` `None`; its sum stays as it is.
#
# *Example:* 1024 micro-batches whose gradient is 1.0 give 1024. (Added in bf16 they give 256.)
#
# *Size:* about 5 lines.

# %% solution="accumulate"
def accumulate(params: list[torch.Tensor], sums: list[torch.Tensor]) -> None:
    ### BEGIN SOLUTION
    for param, total in zip(params, sums, strict=True):
        if param.grad is not None:
            total += param.grad
            param.grad = None
    ### END SOLUTION


# %% test="accumulate_fp32" points=1
def micro_batches(shape, salt):
    """A few micro-batches of numbers between -1 and 1, and 300 that are all 1."""
    return [fill(*shape, salt=salt + k).to(bfloat16) for k in range(5)] + [torch.ones(shape, dtype=bfloat16)] * 300


def probe_accumulate(shapes, unused, salt):
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=bfloat16)) for shape in shapes]
    sums = [torch.zeros(shape) for shape in shapes]
    batches = [micro_batches(shape, salt + which) for which, shape in enumerate(shapes)]
    for step in range(305):
        used = [which for which in range(len(shapes)) if step not in unused.get(which, ())]
        sum((params[which] * batches[which][step]).sum() for which in used).backward()
        accumulate(params, sums)
    return {"sums": sums, "left": [param.grad for param in params]}


def verdict_accumulate(shapes, unused, salt):
    got = run_alone(probe_accumulate, shapes, unused, salt).value
    for which, shape in enumerate(shapes):
        grads = [g for k, g in enumerate(micro_batches(shape, salt + which)) if k not in unused.get(which, ())]
        stalled, running = torch.zeros(shape, dtype=bfloat16), torch.zeros(shape)
        for grad in grads:
            stalled = stalled + grad
            running = running + stalled
        mistakes = {
            "it stalls, as a sum in bfloat16 does, where 256 + 1 is 256": stalled.float(),
            "p.grad was not cleared, so each backward pass added to the one before": running,
            "only the last micro-batch is in it": grads[-1].float(),
        }
        total = torch.stack([grad.double() for grad in grads]).sum(0).float()
        check.outcome(got["sums"][which], total, f"accumulate: sum {which}", mistakes, rtol=1e-6)
        if got["left"][which] is not None:
            raise check.CheckFailed("accumulate: p.grad must be None afterwards, so that its bf16 memory is free.")


verdict_accumulate([(3,), (2, 2)], {}, 0)
### BEGIN HIDDEN TESTS
verdict_accumulate([(5,), (1, 3), (2,)], {0: range(300), 1: [0, 304], 2: range(1, 305)}, 7)
### END HIDDEN TESTS

# %% [markdown]
# ## MixedPrecisionAdam
#
# AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) for bf16 parameters with fp32 masters.
#
# - `MixedPrecisionAdam(params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)`. `params` is a list of
#   bf16 parameters. Make the fp32 master weights here, **once**.
# - `step(grads)`: `grads` is a list of **fp32** gradients, in the order of `params`; they stay unchanged.
#   In fp32, for step t = 1, 2, ...:
#
#   $$w \leftarrow w - \eta\lambda w, \qquad m \leftarrow \beta_1 m + (1-\beta_1) g, \qquad v \leftarrow
#   \beta_2 v + (1-\beta_2) g^2, \qquad w \leftarrow w - \eta\,\frac{m / (1-\beta_1^t)}{\sqrt{v /
#   (1-\beta_2^t)} + \epsilon}$$
#
#   where w is the master, η `lr`, λ `weight_decay`. Then each bf16 parameter gets the new master, rounded,
#   **in place**: the model holds these very tensors.
#
# *Example:* w = 1, lr = 0.001, gradients all 1. Each step moves the master by 0.001; after 100 steps the
# parameter is 0.8984 (0.9 in bf16). Without masters it is still 1.
#
# *Target:* 12 bytes a parameter are held between steps, besides weights and gradients. *Size:* about 20
# lines.

# %% solution="mixed_precision_adam"
class MixedPrecisionAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        ### BEGIN SOLUTION
        self.params, self.lr, self.betas, self.eps, self.weight_decay = list(params), lr, betas, eps, weight_decay
        self.masters = [param.detach().float() for param in self.params]
        self.moments = [(torch.zeros_like(master), torch.zeros_like(master)) for master in self.masters]
        self.steps = 0
        ### END SOLUTION

    def step(self, grads: list[torch.Tensor]) -> None:
        ### BEGIN SOLUTION
        self.steps += 1
        beta1, beta2 = self.betas
        for param, master, (m, v), grad in zip(self.params, self.masters, self.moments, grads, strict=True):
            master.mul_(1 - self.lr * self.weight_decay)
            m.lerp_(grad, 1 - beta1)
            v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            spread = (v / (1 - beta2**self.steps)).sqrt_().add_(self.eps)
            master.addcdiv_(m, spread, value=-self.lr / (1 - beta1**self.steps))
            param.detach().copy_(master)
        ### END SOLUTION


# %% test="adam_small_updates" points=1
def constant_grads(shapes, salt):
    return [torch.where(fill(*shape, salt=salt + 9) > 0, 0.5, -2.0) for shape in shapes]


def probe_small_updates(shapes, salt, steps, options):
    params = [torch.nn.Parameter(weight) for weight in start_weights(shapes, salt)]
    optimizer = MixedPrecisionAdam(params, **options)
    for _ in range(steps):
        optimizer.step(constant_grads(shapes, salt))
    return [param.detach() for param in params]


def verdict_small_updates(shapes, salt, steps, **options):
    got = run_alone(probe_small_updates, shapes, salt, steps, options).value
    start, grads = start_weights(shapes, salt), constant_grads(shapes, salt)
    wanted = torch_adam(torch.optim.AdamW, start, lambda step: grads, steps, **options)
    for which, (weight, want, before) in enumerate(zip(got, wanted, start, strict=True)):
        mistakes = {
            f"the weights stand still for {steps} steps: each update is less than half of bf16's spacing, so "
            "it must be added to an fp32 master that lives from step to step": before,
        }
        check.outcome(weight, want, f"MixedPrecisionAdam, small updates, weight {which}", mistakes, rtol=2e-2)


verdict_small_updates([(3,), (2, 2)], 0, 100, lr=1e-3, betas=(0.9, 0.9))
### BEGIN HIDDEN TESTS
verdict_small_updates([(7,), (1,), (2, 3)], 3, 300, lr=3e-4, betas=(0.9, 0.95))
verdict_small_updates([(4,)], 5, 200, lr=5e-4, betas=(0.8, 0.95), eps=1e-6)
### END HIDDEN TESTS

# %% test="adam_values" points=1
def probe_adam(shapes, salt, steps, options, size):
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=bfloat16)) for shape in shapes]
    kept, optimizer, history = list(params), MixedPrecisionAdam(params, **options), []
    for step in range(steps):
        grads = changing_grads(shapes, salt, step, size)
        optimizer.step(grads)
        history.append({"weights": [param.detach().clone() for param in kept], "grads": grads})
    return history


def verdict_adam(shapes, salt, steps, size, **options):
    history = run_alone(probe_adam, shapes, salt, steps, options, size).value
    b1, b2 = options.get("betas", (0.9, 0.999))
    slips = {
        "the bias correction of m and v, 1 / (1 - beta ** t), is missing": (1 - b1) / math.sqrt(1 - b2),
        "the bias correction of m, 1 / (1 - beta1 ** t), is missing": 1 - b1,
        "the bias correction of v, 1 / (1 - beta2 ** t), is missing": 1 / math.sqrt(1 - b2),
        "the parameter did not change; it must get the new master, in place": 0.0,
        "the sign: Adam goes against the gradient": -1.0,
    }
    slips = {sentence: torch.tensor(k).to(bfloat16).item() for sentence, k in slips.items()}
    zeros = [torch.zeros(shape, dtype=bfloat16) for shape in shapes]
    for step in range(steps):
        grads = partial(changing_grads, shapes, salt, size=size)
        wanted = torch_adam(torch.optim.AdamW, zeros, grads, step + 1, **options)
        for which, want in enumerate(wanted):
            what = f"MixedPrecisionAdam, step {step + 1}, weight {which}"
            got = history[step]["weights"][which]
            near = options["lr"] / 50  # a bf16 sum on the way is the matter of another test
            check.agree(got, want, what, suspects=slips if step == 0 else None, rtol=1e-2, atol=near)
            before = changing_grads(shapes, salt, step, size)[which]
            check.agree(history[step]["grads"][which], before, f"{what}: the gradient, which stays unchanged", rtol=0)


verdict_adam([(3,), (2, 2)], 0, 4, 1.0, lr=2**-4)
### BEGIN HIDDEN TESTS
verdict_adam([(5,), (1,), (3, 2)], 4, 6, 8.0, lr=2**-6)
verdict_adam([(6,)], 8, 5, 1e-3, lr=2**-5, betas=(0.7, 0.9), eps=1e-2)
### END HIDDEN TESTS

# %% test="adam_decay" points=1
def probe_decay(shapes, salt, steps, options, size):
    params = [torch.nn.Parameter(weight) for weight in start_weights(shapes, salt)]
    optimizer = MixedPrecisionAdam(params, **options)
    for step in range(steps):
        optimizer.step([size * grad for grad in changing_grads(shapes, salt, step, 1.0)])
    return [param.detach() for param in params]


def verdict_decay(shapes, salt, steps, size, **options):
    got = run_alone(probe_decay, shapes, salt, steps, options, size).value
    start = start_weights(shapes, salt)
    grads, adamw = partial(changing_grads, shapes, salt, size=size), torch.optim.AdamW
    wanted = torch_adam(adamw, start, grads, steps, **options)

    def mistakes(which):
        decay = options["weight_decay"]
        as_l2 = torch_adam(torch.optim.Adam, start, grads, steps, **options)
        without = torch_adam(adamw, start, grads, steps, **{**options, "weight_decay": 0.0})
        no_lr = torch_adam(adamw, start, grads, steps, **{**options, "weight_decay": decay / options["lr"]})
        return {
            "the decay goes in by way of the gradient (L2), where Adam rescales it; AdamW shrinks the master itself":
                as_l2[which],
            "there is no decay; it belongs on the fp32 master (on bf16 weights a factor of 0.999 rounds away)":
                without[which],
            "the decay of a step is lr * weight_decay, not weight_decay": no_lr[which],
        }  # fmt: skip

    for which, want in enumerate(wanted):
        what = f"MixedPrecisionAdam with weight_decay, weight {which}"
        check.outcome(got[which], want, what, partial(mistakes, which), rtol=1e-2)


verdict_decay([(3,), (2, 2)], 0, 200, 0.0, lr=0.01, weight_decay=0.1)
### BEGIN HIDDEN TESTS
verdict_decay([(5,), (1, 4)], 3, 150, 0.0, lr=0.02, weight_decay=0.05)
verdict_decay([(6,), (2,)], 6, 60, 1.0, lr=0.004, weight_decay=0.5, betas=(0.5, 0.8))
### END HIDDEN TESTS

# %% test="adam_bytes" points=1
def probe_adam_bytes(shapes, steps):
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=bfloat16)) for shape in shapes]
    grads = [torch.ones(shape) for shape in shapes]
    with LiveBytes([*params, *grads]) as live:
        before = live.now()
        optimizer = MixedPrecisionAdam(params, lr=0.1, weight_decay=0.1)
        for _ in range(steps):
            optimizer.step(grads)
        held = live.now() - before
        grads.clear()  # what was only borrowed is gone now
        after = live.now() - before
    _, files = watched(optimizer.step, [torch.ones(shape) for shape in shapes])
    return {"held": held, "after": after, "unknown": live.unknown(), "files": files}


def verdict_adam_bytes(shapes, steps):
    got, numel = run_alone(probe_adam_bytes, shapes, steps).value, sum(math.prod(shape) for shape in shapes)
    written_by_hand(got["files"], "MixedPrecisionAdam")
    kept = (got["after"] + 4 * numel) / numel
    per_parameter, slack = got["held"] / numel, 64 * len(shapes) / numel
    known = {
        8: "one fp32 tensor is missing, or two of the three are bf16",
        6: "as if masters and moments were bf16",
        10: "as if one of them were bf16; a bf16 master does not see small updates",
        14: "as if a bf16 copy were kept besides the three fp32 ones",
        16: "one fp32 tensor more than master, m and v",
        24: "as if all were float64",
    }
    if kept > per_parameter + slack:
        raise check.CheckFailed("MixedPrecisionAdam still holds the gradients after the step.")
    if abs(per_parameter - 12) > slack:
        guess = next((text for size, text in known.items() if abs(per_parameter - size) <= slack), "")
        seen = f"holds {per_parameter:.2f} bytes a parameter between steps; 12 are the target"
        raise check.CheckFailed(f"MixedPrecisionAdam {seen}{': ' + guess if guess else ''}.")
    if got["unknown"] > 64 * len(shapes):
        raise check.CheckFailed(f"{got['unknown']} bytes came from outside torch; hold the states in torch tensors.")


verdict_adam_bytes([(50, 40), (1000,)], 2)
### BEGIN HIDDEN TESTS
verdict_adam_bytes([(77, 31), (513,), (1, 900)], 3)
### END HIDDEN TESTS

# %% [markdown]
# ## LossScaler
#
# fp16 has few exponents: gradients below 6e-8 become 0. *Loss scaling* (损失缩放) multiplies the loss, and so
# all gradients, by a large factor, and divides it out again before the optimizer. When the factor is too
# large, gradients overflow to inf or NaN: that step is skipped and the factor halved. The trap is on many
# ranks: when each holds **other** gradients (its shard, its layers), one rank may overflow alone. If it
# alone skips the step, the model is torn apart. **All ranks must decide alike.**
#
# - `LossScaler(factor, growth_interval)`: `scaler.factor` is what it multiplies by now.
# - `scaler.scale(loss)` returns the loss times the factor.
# - `scaler.unscale(grads)`: `grads` is a list of fp32 tensors of this rank, maybe an **empty** one; divides
#   them by the factor, in place. Returns `True`, on **every** rank, if any gradient of **any** rank holds
#   inf or NaN, else `False`. Works too where `dist.is_initialized()` is false.
# - `scaler.update(overflow)`: after an overflow the factor is halved. After `growth_interval` steps in a row
#   without one it is doubled, and the count begins anew.
#
# *Example*, factor 1024, growth_interval 2, overflow no, yes, no, no, no: the factor becomes 1024, 512, 512,
# 1024, 1024. (The overflow starts the count anew.)
#
# *Target:* a rank sends at most 16 bytes per call of `unscale` and other rank: a flag, not gradients.
# *Size:* about 20 lines.

# %% solution="loss_scaler"
class LossScaler:
    def __init__(self, factor: float = 2.0**16, growth_interval: int = 2000):
        ### BEGIN SOLUTION
        self.factor, self.growth_interval, self.good_steps = factor, growth_interval, 0
        ### END SOLUTION

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        ### BEGIN SOLUTION
        return loss * self.factor
        ### END SOLUTION

    def unscale(self, grads: list[torch.Tensor]) -> bool:
        ### BEGIN SOLUTION
        bad = torch.zeros(1)
        for grad in grads:
            grad /= self.factor
            bad += (~grad.isfinite()).any()
        if dist.is_initialized():
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        return bool(bad > 0)
        ### END SOLUTION

    def update(self, overflow: bool) -> None:
        ### BEGIN SOLUTION
        self.good_steps = 0 if overflow else self.good_steps + 1
        if overflow:
            self.factor /= 2
        elif self.good_steps == self.growth_interval:
            self.factor, self.good_steps = 2 * self.factor, 0
        ### END SOLUTION


# %% test="scaler_schedule" points=1
BAD = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "": 0.0}


def scaled_grads(shapes, salt, step, factor, bad):
    """What a backward pass would leave: gradients times the factor, one element spoilt where `bad` says so."""
    grads = [factor * grad for grad in changing_grads(shapes, salt, step)]
    grads[-1].view(-1)[-1] += BAD[bad]
    return grads


def probe_schedule(shapes, salt, factor, interval, pattern):
    scaler, history = LossScaler(factor, interval), []
    for step, bad in enumerate(pattern):
        loss = scaler.scale(torch.tensor(3.0))
        grads = scaled_grads(shapes, salt, step, float(scaler.factor), bad)
        overflow = scaler.unscale(grads)
        scaler.update(overflow)
        history.append({"loss": loss, "overflow": overflow, "grads": grads, "factor": float(scaler.factor)})
    return history


def verdict_schedule(shapes, salt, factor, interval, pattern):
    history = run_alone(probe_schedule, shapes, salt, factor, interval, pattern).value
    factors, now = torch_factors([[bad] for bad in pattern], factor, interval), factor
    for step, (seen, bad, following) in enumerate(zip(history, pattern, factors, strict=True)):
        what = f"LossScaler, step {step + 1} of {[b or 'good' for b in pattern]}"
        check.agree(seen["loss"], torch.tensor(3.0 * now), f"{what}: scale(3.0) at factor {now:g}")
        if bool(seen["overflow"]) is not bool(bad):
            said = f"unscale returned {seen['overflow']} where one gradient is {bad or 'no inf and no NaN'}"
            raise check.CheckFailed(f"{what}: {said}.")
        for which, grad in enumerate(changing_grads(shapes, salt, step)):
            slips = {"they were not divided by the factor": now, "divided twice": 1 / now}
            if not bad:
                check.agree(seen["grads"][which], grad, f"{what}: unscaled gradient {which}", suspects=slips)
        check.count(seen["factor"], following, f"{what}: the factor", "", factor_mistakes(now, bad, interval))
        now = following


verdict_schedule([(3,), (2, 2)], 0, 1024.0, 2, ["", "inf", "", "", ""])
### BEGIN HIDDEN TESTS
verdict_schedule([(4,)], 5, 2.0**16, 3, ["", "", "nan", "", "", "", "", "", "-inf", "inf", "", "", "", ""])
verdict_schedule([(2,), (1, 3)], 6, 8.0, 1, ["", "", "nan", ""])
### END HIDDEN TESTS

# %% test="scaler_agreement" points=1
SHAPES = {0: [(3,), (2, 2)], 1: [(5,)], 2: [], 3: [(1,), (7,)]}  # by rank; rank 2 owns nothing


def rank_grads(rank, step, factor, bad):
    grads = [factor * grad for grad in changing_grads(SHAPES[rank], rank, step)]
    if bad:
        grads[0].view(-1)[0] = float(bad)
    return grads


def probe_agreement(table):
    rank, scaler, history = dist.get_rank(), LossScaler(256.0, 2), []
    for step, bad in enumerate(table):
        grads = rank_grads(rank, step, float(scaler.factor), bad[rank])
        overflow = scaler.unscale(grads)
        scaler.update(overflow)
        history.append({"overflow": overflow, "grads": grads, "factor": float(scaler.factor)})
    return history


def verdict_agreement(pattern, ranks, delay=None):
    table = overflows(pattern, ranks)
    run = launch(probe_agreement, table, ranks=ranks, device="cpu", timeout=20, delay=delay)
    factors = torch_factors(table, 256.0, 2)
    for step, where in enumerate(pattern):
        flags = [bool(history[step]["overflow"]) for history in run.values]
        happened = f"{where[1]} on rank {where[0]} only" if where else "no overflow anywhere"
        what = f"LossScaler on {ranks} ranks, step {step + 1} ({happened})"
        if flags != [where is not None] * ranks:
            raise check.CheckFailed(f"{what}: unscale returned {flags}; all ranks must return {where is not None}.")
        for rank, history in enumerate(run.values):
            now = factors[step - 1] if step else 256.0
            got, mistakes = history[step]["factor"], factor_mistakes(now, where, 2)
            check.count(got, factors[step], f"{what}: the factor on rank {rank}", "", mistakes)
            for which, grad in enumerate(changing_grads(SHAPES[rank], rank, step)):
                if not where:
                    slips = {"they were not divided by the factor": now, "divided twice": 1 / now}
                    unscaled = history[step]["grads"][which]
                    check.agree(unscaled, grad, f"{what}: unscaled gradient of rank {rank}", suspects=slips)
    allowed = 16 * (ranks - 1) * len(pattern)
    for rank in range(ranks):
        if run.trace.bytes_sent(rank) > allowed:
            raise check.CheckFailed(
                f"LossScaler: rank {rank} sent {run.trace.bytes_sent(rank)} bytes in {len(pattern)} calls; "
                f"a flag is enough, at most {allowed} bytes."
            )


verdict_agreement([None, (1, "inf"), None], 2)
### BEGIN HIDDEN TESTS
verdict_agreement([(0, "nan"), None, None], 1)
verdict_agreement([(1, "-inf"), (0, "nan"), None, None], 3, delay={1: 0.02})
verdict_agreement([None, (3, "nan"), (0, "inf"), None, None], 4, delay={2: 0.02})
### END HIDDEN TESTS

# %% [markdown]
# ## scaled_step
#
# `scaled_step(scaler, optimizer, grads)`: one step with your `LossScaler` and your `MixedPrecisionAdam`.
# `grads` are this rank's scaled fp32 gradients. Unscale them; if no rank overflowed, let the optimizer step;
# update the scaler. Returns `True` if the step was made and `False` if it was skipped.
#
# A skipped step leaves **everything** of the optimizer as it was: weights, masters, both moments and the
# step count, on every rank. One NaN in a moment would stay there for ever.
#
# *Size:* about 5 lines.

# %% solution="scaled_step"
def scaled_step(scaler: LossScaler, optimizer: MixedPrecisionAdam, grads: list[torch.Tensor]) -> bool:
    ### BEGIN SOLUTION
    overflow = scaler.unscale(grads)
    if not overflow:
        optimizer.step(grads)
    scaler.update(overflow)
    return not overflow
    ### END SOLUTION


# %% test="skipped_step" points=1
def shapes_of(rank):
    return [(3,), (2, 2 + rank)]


def probe_scaled_step(table, options):
    rank, history = dist.get_rank(), []
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=bfloat16)) for shape in shapes_of(rank)]
    scaler, optimizer, updates = LossScaler(2.0**14, 3), MixedPrecisionAdam(params, **options), []
    inner = scaler.update
    scaler.update = lambda overflow: (updates.append(bool(overflow)), inner(overflow))
    for step, bad in enumerate(table):
        grads = [float(scaler.factor) * grad for grad in changing_grads(shapes_of(rank), rank, step)]
        grads[1][0, 1] += float(bad[rank] or 0)
        made = scaled_step(scaler, optimizer, grads)
        weights = [param.detach().clone() for param in params]
        history.append({"made": made, "weights": weights, "updates": list(updates)})
        updates.clear()
    return history


def good_steps_only(rank, pattern, options):
    """fp32 masters under torch's AdamW, which never sees the steps that overflowed; bf16 weights by step."""
    masters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes_of(rank)]
    optimizer, history = torch.optim.AdamW(masters, **{"weight_decay": 0.0, **options}), []
    for step, bad in enumerate(pattern):
        if bad is None:
            for master, grad in zip(masters, changing_grads(shapes_of(rank), rank, step), strict=True):
                master.grad = grad
            optimizer.step()
        history.append([master.detach().to(bfloat16) for master in masters])
    return history


def verdict_scaled_step(pattern, ranks, **options):
    table = overflows(pattern, ranks)
    run = launch(probe_scaled_step, table, options, ranks=ranks, device="cpu", timeout=20)
    for rank, history in enumerate(run.values):
        wanted = good_steps_only(rank, pattern, options)
        for step, bad in enumerate(pattern):
            happened = f"{bad[1]} on rank {bad[0]}" if bad else "no overflow"
            what = f"scaled_step on {ranks} ranks, step {step + 1} ({happened}), rank {rank}"
            if bool(history[step]["made"]) is not (bad is None):
                raise check.CheckFailed(f"{what}: returned {history[step]['made']}; wanted {bad is None}.")
            for which, (got, want) in enumerate(zip(history[step]["weights"], wanted[step], strict=True)):
                skipped = any(pattern[:step])
                rule = ", after a skipped step, which leaves m, v and the step count untouched" if skipped else ""
                check.agree(got, want, f"{what}, weight {which}{rule}", rtol=1e-2, atol=options["lr"] / 50)
            if history[step]["updates"] != [bad is not None]:
                raise check.CheckFailed(
                    f"{what}: scaler.update was called with {history[step]['updates']}; once with {bad is not None} is "
                    "wanted, whether the step is made or skipped."
                )


verdict_scaled_step([None, (1, "inf"), None], 2, lr=2**-4)
### BEGIN HIDDEN TESTS
verdict_scaled_step([(0, "nan"), None, None], 1, lr=2**-4)
verdict_scaled_step([None, (2, "nan"), (0, "-inf"), None, None], 3, lr=2**-5)
verdict_scaled_step([(3, "inf"), None, None, (1, "nan"), None], 4, lr=2**-4, betas=(0.6, 0.9))
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. Activations
#
# *Activations* (激活) are what the forward pass leaves behind for the backward pass. They grow with batch
# and sequence, and soon outweigh the model.
#
# ## activation_bytes
#
# `activation_bytes(sizes, batch, seq, itemsize)`: the bytes that autograd keeps for the backward pass of
# **one** `utils.models.Block` in training mode, with activations of `itemsize` bytes an element. Print its
# source (`Block??`) and walk through it; each operation keeps what its derivative needs:
#
# - a Linear: its input. LayerNorm: its input. GELU: its input. SiLU: its input. Softmax: its **output**.
# - a product of two tensors, elementwise or of matrices: both factors.
# - adding, scaling by a number, reshaping, transposing: nothing. `masked_fill`: its mask, here S x S of
#   **one** byte.
# - dropout (if `sizes.dropout` > 0; a product with a random mask): the mask, on the CPU in the number type
#   of the activations.
# - the fused attention (if `sizes.fused_attention`): q, k, v and its output, laid out so that `o_proj`
#   takes the very same memory. Its scores are never stored.
#
# A tensor that several operations keep counts **once**; parameters do not count. With fewer kv heads, k and
# v are repeated to N heads *before* the products. Leave out what has no factor H, F or S² in it: the two
# numbers a token that a LayerNorm keeps, and one a token and head of the fused attention. Dropout and fused
# attention do not come together.
#
# *Example*, a plain block of H = 4, N = 2, F = 16, B = 1, S = 3, bf16: the inputs of the two norms, of
# q/k/v_proj, of the FFN and of `o_proj` are 5 tensors of B*S*H = 12 elements; q, k, v 3 more; softmax's
# output B*N*S² = 18; GELU's input and `down`'s 2 of B*S*F = 48. That is 8 * 12 + 18 + 2 * 48 = 210
# elements, 420 bytes, and 9 for the mask: 429.
#
# *Target:* within 1 % of what `saved_bytes(block, x)` measures. *Size:* about 12 lines. (Korthikanti et
# al., arXiv 2205.05198, count sbh(34 + 5as/h) bytes for fp16 with dropout masks of one byte: yours, with
# those masks.)

# %% solution="activation_bytes"
def activation_bytes(sizes: SimpleNamespace, batch: int, seq: int, itemsize: int) -> int:
    ### BEGIN SOLUTION
    hidden = batch * seq * sizes.hidden
    elements = 8 * hidden  # inputs of two norms, q/k/v_proj, the FFN and o_proj; q, k and v
    elements += (4 if sizes.gated else 2) * batch * seq * sizes.ffn
    dropping, mask = sizes.dropout > 0, 0
    if not sizes.fused_attention:
        # with dropout the weights, their mask and the dropped weights, which the product keeps
        elements += (3 if dropping else 1) * batch * sizes.heads * seq**2
        mask = seq**2
    if dropping:
        elements += 2 * hidden
    return elements * itemsize + mask
    ### END SOLUTION


# %% shared="kept"
def kept(config: TransformerConfig, B: int, S: int, dtype: torch.dtype) -> int:
    """Measured: the bytes that autograd keeps of one block."""
    block, x = Block(config).to(dtype), torch.zeros(B, S, config.hidden, dtype=dtype, requires_grad=True)
    with torch.random.fork_rng(devices=[]):
        return saved_bytes(block, x)


def kept_mistakes(config: TransformerConfig, B: int, S: int, dtype: torch.dtype) -> dict[str, float]:
    """What known slips come to: mostly the bytes of another block, for which this one is taken."""
    whole, plain = kept(config, B, S, dtype), replace(config, dropout=0.0)
    repeated = 2 * B * S * (config.hidden - config.kv_hidden) * dtype.itemsize
    return {
        "each head has S x S attention weights of its own": kept(replace(config, heads=1, kv_heads=1), B, S, dtype),
        "the attention weights grow with S squared": kept(replace(plain, fused_attention=True), B, S, dtype),
        "that looks like elements, not bytes": whole / dtype.itemsize,
        "only one sequence of the batch was counted": kept(config, 1, S, dtype),
        "F is not 4H here": kept(replace(config, ffn=4 * config.hidden), B, S, dtype),
        "a gated feed-forward keeps more than two tensors of width F": kept(replace(config, gated=False), B, S, dtype),
        "the masks of dropout, and what they leave, are missing": kept(plain, B, S, dtype),
        "the fused attention stores no S x S weights": kept(replace(config, fused_attention=False), B, S, dtype),
        "keys and values are repeated to all heads before the product": whole - repeated,
        "34sbh + 5as^2b counts dropout, with masks of one byte": (34 * config.hidden + 5 * config.heads * S)
        * B * S * dtype.itemsize / 2,
    }  # fmt: skip


# %% test="activation_plain" points=1
def probe_activations(cases):
    return watched(
        lambda: [activation_bytes(sizes_of(config), B, S, dtype.itemsize) for config, B, S, dtype in cases]
    )


def verdict_activations(cases):
    results, files = run_alone(probe_activations, cases).value
    written_by_hand(files, "activation_bytes")
    for got, case in zip(results, cases, strict=True):
        config, B, S, dtype = case
        where = f"(B {B}, S {S}, H {config.hidden}, N {config.heads}, F {config.ffn}, {dtype})"
        mistakes = partial(kept_mistakes, *case)
        check.count(got, kept(*case), f"activation_bytes {where}", "bytes", mistakes, rel=0.01)


plain = TransformerConfig(hidden=128, heads=4)
verdict_activations([(plain, 2, 16, bfloat16), (plain, 3, 40, float32)])
### BEGIN HIDDEN TESTS
many = replace(plain, heads=8, kv_heads=8, ffn=192, bias=False)
verdict_activations([(many, 2, 96, bfloat16), (plain, 5, 1, bfloat16)])
### END HIDDEN TESTS

# %% test="activation_variants" points=1
def probe_variants(cases):
    return watched(
        lambda: [activation_bytes(sizes_of(config), B, S, dtype.itemsize) for config, B, S, dtype in cases]
    )


def verdict_variants(cases):
    results, files = run_alone(probe_variants, cases).value
    written_by_hand(files, "activation_bytes")
    for got, case in zip(results, cases, strict=True):
        about = ("gated", "dropout", "fused_attention", "kv_heads", "ffn")
        where = ", ".join(f"{name} {getattr(case[0], name)}" for name in about)
        mistakes = partial(kept_mistakes, *case)
        check.count(got, kept(*case), f"activation_bytes ({where})", "bytes", mistakes, rel=0.01)


plain = TransformerConfig(hidden=128, heads=4)
verdict_variants([(replace(plain, gated=True), 2, 16, bfloat16), (replace(plain, dropout=0.1), 2, 48, bfloat16)])
### BEGIN HIDDEN TESTS
llama = TransformerConfig(hidden=96, heads=6, kv_heads=2, ffn=256, gated=True, bias=False)
verdict_variants(
    [
        (llama, 2, 24, bfloat16),
        (replace(llama, fused_attention=True), 2, 64, bfloat16),
        (replace(plain, fused_attention=True), 3, 50, float32),
        (replace(llama, dropout=0.2), 3, 64, float32),
    ]
)
### END HIDDEN TESTS

# %% [markdown]
# ## checkpoint
#
# *Activation checkpointing* (激活检查点, 重计算): keep the **inputs** of a piece of the model, forget what
# happens inside, and run the piece once more in the backward pass (Chen et al., arXiv 1604.06174).
#
# `checkpoint(fn, *args)` returns `fn(*args)`, one tensor. Build it on `torch.autograd.Function` or in any
# other way that is not torch's own checkpoint.
#
# - *Gradients* are those of `fn(*args)`: of tensor arguments, and of parameters that `fn` uses (a `Block`,
#   say), which accumulate as always. A parameter gets its gradient even where **no argument requires
#   one**: the first block's input is data. (Careful: a `Function` none of whose tensor inputs requires a
#   gradient is not part of the graph. What else could you hand it?)
# - *Memory:* after the forward pass only the arguments and the result are held; what the second run makes
#   is gone when its piece of the backward pass is over.
# - *Random numbers* (dropout): the second run draws **the same** as the first. After the backward pass the
#   stream goes on as if there had been no second run. (`torch.get_rng_state`, `torch.random.fork_rng`. The
#   tests run on the CPU: the CPU's generator is enough.)
# - *Arguments:* tensors that require a gradient or not, of any number type, the same one twice, `None`,
#   numbers and texts. What comes in is handed to `fn` as it came, with `requires_grad` as it was.
# - *Cost:* `fn` runs twice for a forward and backward pass, never more.
#
# *Example:* `checkpoint(lambda x, k: x * x * k, x, 3)` with x = 2 returns 12, and its backward gives x the
# gradient 12.
#
# *Size:* about 25 lines.

# %% solution="checkpoint"
class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        ### BEGIN SOLUTION
        fn, _, *args = args
        ctx.fn, ctx.random = fn, torch.get_rng_state()
        ctx.rest = [None if torch.is_tensor(arg) else arg for arg in args]
        ctx.places = [place for place, arg in enumerate(args) if torch.is_tensor(arg)]
        ctx.save_for_backward(*(args[place] for place in ctx.places))
        return fn(*args)  # autograd records nothing inside forward
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):
        ### BEGIN SOLUTION
        args, grads = list(ctx.rest), [None] * len(ctx.rest)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.random)
            result = ctx.fn(*args)
        if result.requires_grad:
            torch.autograd.backward(result, grad)
        for place in ctx.places:
            grads[place] = args[place].grad
        return None, None, *grads
        ### END SOLUTION


def checkpoint(fn, *args):
    ### BEGIN SOLUTION
    link = torch.zeros((), requires_grad=True)  # ties the node into the graph when no argument does
    return Checkpoint.apply(fn, link, *args)
    ### END SOLUTION


# %% shared="blocks"
from torch.utils.checkpoint import checkpoint as torch_checkpoint


def oracle_checkpoint(fn, *args):
    """torch's own, for the oracles, in its form that runs all of fn again."""
    return torch_checkpoint(fn, *args, use_reentrant=True)


def no_checkpoint(fn, *args):
    return fn(*args)


def here(fn, *args):
    """fn(*args) in this process, for oracles, on one thread; the stream of random numbers stays where it was."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            return fn(*args)
    finally:
        torch.set_num_threads(threads)


def some_blocks(config: TransformerConfig, count: int, seed: int = 0) -> list[Block]:
    """Blocks in training mode, the same for the same seed."""
    torch.manual_seed(seed)
    return [Block(config) for _ in range(count)]


def two_passes(apply, config: TransformerConfig, input_grad: bool, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Forward and backward twice through three blocks, each by way of `apply`; results and all gradients."""
    blocks, held = some_blocks(config, 3), {}
    for step in range(2):
        x = fill(*shape, salt=step).requires_grad_(input_grad)
        y = x
        for block in blocks:
            y = apply(block, y)
        if y.requires_grad:
            (y * fill(*shape, salt=step + 5)).sum().backward()
        held[f"result {step}"] = y.detach()
        if input_grad:
            held[f"input.grad {step}"] = x.grad
    for number, block in enumerate(blocks):
        held |= {f"blocks.{number}.{name}.grad": value.grad for name, value in block.named_parameters()}
    return held | {"random afterwards": torch.rand(4)}


# %% test="checkpoint_gradients" points=1
def probe_gradients(config, input_grad, shape):
    return two_passes(checkpoint, config, input_grad, shape)


def verdict_gradients(config, input_grad, shape):
    got = run_alone(probe_gradients, config, input_grad, shape).value
    wanted = here(two_passes, no_checkpoint, config, input_grad, shape)
    del wanted["random afterwards"], got["random afterwards"]
    where = "" if input_grad else ", the input is data and requires no gradient"
    slips = {"each pass added its gradient twice": 2.0}
    check.agree(got, wanted, f"checkpoint (3 blocks, 2 passes{where})", suspects=slips, rtol=1e-4, atol=1e-5)


small = TransformerConfig(hidden=16, heads=2)
verdict_gradients(small, True, (2, 5, 16))
### BEGIN HIDDEN TESTS
verdict_gradients(replace(small, gated=True, kv_heads=1, fused_attention=True), True, (3, 7, 16))
verdict_gradients(small, False, (2, 4, 16))
### END HIDDEN TESTS

# %% test="checkpoint_memory" points=1
def live_bytes(apply, config, count, shape):
    """Bytes that the passes through `count` blocks hold, above what was there before them."""
    blocks = some_blocks(config, count)
    x = fill(*shape).requires_grad_()
    with LiveBytes([x, *(parameter for block in blocks for parameter in block.parameters())]) as live:
        before = live.now()
        y = x
        for block in blocks:
            y = apply(block, y)
        live.mark("forward")
        y = y.sum()
        y.backward()
        live.mark("backward")
    bytes_of = {name: [now - before, peak - before] for name, (now, peak) in live.marks.items()}
    return {**bytes_of, "unknown": live.unknown()}


def probe_live(config, count, shape):
    return live_bytes(checkpoint, config, count, shape)


def verdict_live(config, count, shape):
    got = run_alone(probe_live, config, count, shape).value
    whole = here(live_bytes, no_checkpoint, config, count, shape)
    one = here(live_bytes, no_checkpoint, config, 1, shape)
    borders, states = 4 * count * math.prod(shape), count * 6000  # a random state of the CPU is 5056 bytes
    what = f"checkpoint ({count} blocks)"
    held, least = got["forward"][0], borders + states + 4000
    if held > least:
        raise check.CheckFailed(
            f"{what}: {held} bytes are held after the forward pass. The blocks' results are {borders}, and without "
            f"checkpointing it is {whole['forward'][0]}: something from inside the blocks is kept."
        )
    if got["unknown"] > 2 * states + 4000:
        raise check.CheckFailed(f"{what}: {got['unknown']} bytes are held outside of torch's tensors.")
    grads = whole["backward"][0]
    if got["backward"][0] > grads + 4000:
        raise check.CheckFailed(
            f"{what}: after the backward pass {got['backward'][0]} bytes are still held; the gradients are {grads}."
        )
    most = least + grads + 1.5 * one["forward"][0]
    if got["backward"][1] > most:
        raise check.CheckFailed(
            f"{what}: the backward pass reached {got['backward'][1]} bytes; with one block at a time run again, "
            f"{most:.0f} are enough."
        )


verdict_live(TransformerConfig(hidden=32, heads=4), 4, (4, 16, 32))
### BEGIN HIDDEN TESTS
verdict_live(TransformerConfig(hidden=16, heads=2, gated=True, dropout=0.1), 6, (8, 32, 16))
### END HIDDEN TESTS

# %% test="checkpoint_random" points=1
def probe_random(config, shape):
    return two_passes(checkpoint, config, True, shape)


def verdict_random(config, shape):
    got = run_alone(probe_random, config, shape).value
    wanted = here(two_passes, oracle_checkpoint, config, True, shape)
    what = f"checkpoint with dropout {config.dropout}"
    rules = {
        "result 0": "the first forward pass, in which fn draws as it would by itself",
        "input.grad 0": "the second run must draw the same mask as the first",
        "result 1": "after a backward pass the random numbers must go on as if there had been no second run",
    }
    for name, rule in rules.items():
        check.agree(got[name], wanted[name], f'{what}: "{name}" ({rule})', rtol=1e-4, atol=1e-5)
    check.agree(got, wanted, what, rtol=1e-4, atol=1e-5)


verdict_random(TransformerConfig(hidden=16, heads=2, dropout=0.5), (2, 5, 16))
### BEGIN HIDDEN TESTS
verdict_random(TransformerConfig(hidden=8, heads=2, dropout=0.2, gated=True), (3, 6, 8))
### END HIDDEN TESTS

# %% test="checkpoint_arguments" points=1
def cases_of_arguments():
    x, y, index = fill(3, 4), fill(3, 4, salt=3), torch.tensor([2, 0])
    half = fill(4, salt=1).to(bfloat16)
    return {
        "a number, None and a text": (lambda a, k, nothing, name: a * a * k, (x, 3, None, "sum"), [True] + [False] * 3),
        "a tensor without gradient": (lambda a, b: a.exp() * b, (x, y), [True, False]),
        "only the second requires one": (lambda a, b: (a * b).sin(), (x, y), [False, True]),
        "whole numbers": (lambda a, i: a[i] * a[i], (x, index), [True, False]),
        "a mask": (lambda a, m: a.masked_fill(m, 0.0) * a, (x, y > 0), [True, False]),
        "the same tensor twice": (lambda a, b: a * b.cos(), (x, x), [True, True]),
        "bfloat16": (lambda a: a * a, (half,), [True]),
        "requires_grad as it was": (lambda a, b: a * a if b.requires_grad else a * b, (x, y), [True, False]),
    }


def run_arguments(apply):
    held = {}
    for name, (fn, args, wanting) in cases_of_arguments().items():
        originals = [arg.requires_grad_() if wants else arg for arg, wants in zip(args, wanting, strict=True)]
        result = apply(fn, *originals)
        (result * fill(*result.shape, salt=8)).sum().backward()
        held[name] = {"result": result.detach()}
        held[name] |= {f"gradient {place}": originals[place].grad for place in range(len(args)) if wanting[place]}
    with torch.no_grad():
        held["under no_grad"] = {"result": apply(lambda a: a * a, fill(5).requires_grad_())}
    return held


def probe_arguments():
    return run_arguments(checkpoint)


got, wanted = run_alone(probe_arguments).value, here(run_arguments, no_checkpoint)
for name in wanted:
    check.agree(got[name], wanted[name], f"checkpoint, arguments: {name}", rtol=1e-2 if name == "bfloat16" else 1e-5)

# %% test="checkpoint_cost" points=1
def cost(apply, count, shape):
    blocks, runs = some_blocks(TransformerConfig(hidden=shape[-1], heads=2), count), []
    x = fill(*shape).requires_grad_()
    y = x
    for number, block in enumerate(blocks):
        y = apply(lambda z, block=block, number=number: (runs.append(number), block(z))[1], y)
    forward = len(runs)
    y.sum().backward()
    return {"forward": forward, "runs": list(runs)}


def probe_cost(count, shape):
    return cost(checkpoint, count, shape)


def probe_files(shape):
    block = some_blocks(TransformerConfig(hidden=shape[-1], heads=2), 1)[0]
    return watched(lambda: checkpoint(block, fill(*shape).requires_grad_()).sum().backward())[1]


def verdict_cost(count, shape):
    got = run_alone(probe_cost, count, shape).value
    again = len(got["runs"]) - got["forward"]
    if got["forward"] != count or again != count:
        raise check.CheckFailed(
            f"checkpoint ({count} blocks): fn ran {got['forward']} times in the forward pass and {again} times in the "
            f"backward pass; {count} and {count} are enough."
        )
    last_first = list(range(count)) + list(reversed(range(count)))
    if got["runs"] != last_first:
        raise check.CheckFailed(
            f"checkpoint: the blocks ran in the order {got['runs']}, wanted {last_first}: the backward pass needs the "
            "last one first."
        )


written_by_hand(run_alone(probe_files, (2, 3, 8)).value, "checkpoint", ("torch/utils/checkpoint.py",))
verdict_cost(2, (2, 6, 8))
### BEGIN HIDDEN TESTS
verdict_cost(4, (3, 5, 16))
### END HIDDEN TESTS

# %% [markdown]
# ## What it buys
#
# The next cell is not graded. It trains six blocks with your `checkpoint` on none to all of them, follows
# every byte, and takes the time. *Before you run it, say what you expect: by how much does the peak fall,
# and how much longer does a step take, when all six are checkpointed?* A block's forward pass is a third of
# its work.

# %%
from time import perf_counter

import matplotlib.pyplot as plt


def one_step(blocks, x, checkpointed):
    y = x
    for number, block in enumerate(blocks):
        y = checkpoint(block, y) if number < checkpointed else block(y)
    y.square().mean().backward()


def measure_steps(shape, tries=5):
    blocks = some_blocks(TransformerConfig(hidden=shape[-1], heads=4), 6)
    parameters = [parameter for block in blocks for parameter in block.parameters()]
    x, rows = fill(*shape), []
    for checkpointed in range(len(blocks) + 1):
        one_step(blocks, x, checkpointed)  # warm-up; gradients exist from here on
        with LiveBytes([x, *parameters, *(parameter.grad for parameter in parameters)]) as live:
            start = live.now()
            one_step(blocks, x, checkpointed)
        times = []
        for _ in range(tries):
            begin = perf_counter()
            one_step(blocks, x, checkpointed)
            times.append(perf_counter() - begin)
        curve = [now - start for now in live.curve]
        rows.append({"peak": live.peak() - start, "seconds": min(times), "curve": curve})
    return rows


def plot_steps(rows):
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for checkpointed, color in ((0, "#D55E00"), (len(rows) - 1, "#0072B2")):
        label = f"{checkpointed} of {len(rows) - 1} blocks checkpointed"
        left.plot([now / 2**20 for now in rows[checkpointed]["curve"]], color=color, label=label)
    left.set_xlabel("operators that took new memory, in order")
    left.set_ylabel("MiB besides weights and gradients")
    left.legend(frameon=False, fontsize=9)
    for number, row in enumerate(rows):
        right.scatter(row["seconds"] / rows[0]["seconds"], row["peak"] / rows[0]["peak"], color="#009E73")
        right.annotate(f" {number}", (row["seconds"] / rows[0]["seconds"], row["peak"] / rows[0]["peak"]))
    right.axvline(4 / 3, color="#BBBBBB", linewidth=1)
    right.set_xlabel("time of a step, none checkpointed = 1 (line: 4/3)")
    right.set_ylabel("peak, none checkpointed = 1")
    for ax in (left, right):
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
    plt.show()


rows = launch(measure_steps, (4, 64, 64), ranks=None, device="cpu").value
for number, row in enumerate(rows):
    print(f"{number} of 6: peak {row['peak'] / 2**20:6.2f} MiB, {row['seconds'] * 1e3:6.1f} ms a step")
plot_steps(rows)

# %% [markdown]
# # Part 4. FLOPs
#
# A product of [m, k] by [k, n] takes 2mkn floating-point operations (*FLOPs*, 浮点运算次数): mkn
# multiplications and as many additions.
#
# ## layer_flops
#
# `layer_flops(sizes, batch, seq)`: the FLOPs of the matrix products in **one** block's forward pass, as a
# dictionary with the keys `"projections"` (q, k, v and o), `"attention"` (both S x S products; the half
# above the diagonal is computed too, and masked) and `"ffn"`. All else (norms, softmax, biases,
# activations) is left out. Watch `kv_heads`, `ffn` and `gated`.
#
# *Example*, H = 4, N = K = 2, F = 16, not gated, B = 1, S = 3: projections 4 * 2*3*4*4 = 384, attention 2 *
# 2*3*3*4 = 144, FFN 2 * 2*3*4*16 = 768.
#
# *Size:* about 5 lines.

# %% solution="layer_flops"
def layer_flops(sizes: SimpleNamespace, batch: int, seq: int) -> dict[str, int]:
    ### BEGIN SOLUTION
    h, tokens = sizes.hidden, batch * seq
    kv = sizes.kv_heads * (h // sizes.heads)
    return {
        "projections": 2 * tokens * h * (2 * h + 2 * kv),
        "attention": 2 * 2 * tokens * seq * h,
        "ffn": 2 * tokens * h * sizes.ffn * (3 if sizes.gated else 2),
    }
    ### END SOLUTION


# %% test="flops_layer" points=1
def probe_flops(cases):
    return watched(lambda: [layer_flops(sizes_of(config), B, S) for config, B, S in cases])


def counted(config, B, S):
    """torch's count of a block's products, on a block without memory."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        block, x = Block(config), torch.empty(B, S, config.hidden)
        attention, ffn = block.attention(x), counter.get_total_flops()
        products = counter.get_flop_counts()["Global"][torch.ops.aten.bmm]
        block.feed_forward(attention)
    return {"projections": ffn - products, "attention": products, "ffn": counter.get_total_flops() - ffn}


def flops_mistakes(config, B, S, key, want):
    others = {
        "with fewer kv heads, k_proj and v_proj are narrower": replace(config, kv_heads=config.heads),
        "a gated feed-forward has three products": replace(config, gated=False),
        "F is not 4H here": replace(config, ffn=4 * config.hidden),
    }
    return {sentence: counted(other, B, S)[key] for sentence, other in others.items()} | {
        "half; a multiply-add is two operations, and attention has two products": want / 2,
        "a quarter; a multiply-add is two operations, and attention has two products": want / 4,
        "training does three times this; the forward pass is asked for": 3 * want,
        "the batch is missing": want / B,
        "the sequence is missing": want / S,
        "6BSH^2, as in the lecture, has lost the width F": 6 * B * S * config.hidden**2,
    }


def verdict_flops(cases):
    results, files = run_alone(probe_flops, cases).value
    written_by_hand(files, "layer_flops")
    for got, case in zip(results, cases, strict=True):
        (config, B, S), got, wanted = case, check.answer(got, "layer_flops"), counted(*case)
        for key, want in wanted.items():
            check.has_number(got, key, "layer_flops")
            where = f"(B {B}, S {S}, H {config.hidden}, K {config.kv_heads}, F {config.ffn})"
            mistakes = partial(flops_mistakes, *case, key, want)
            check.count(got[key], want, f'layer_flops["{key}"] {where}', "FLOPs", mistakes)


example = TransformerConfig(hidden=4, heads=2)
verdict_flops([(example, 1, 3), (replace(example, gated=True, hidden=48, heads=4, ffn=100), 3, 10)])
### BEGIN HIDDEN TESTS
llama = TransformerConfig(hidden=4096, heads=32, kv_heads=8, ffn=14336, gated=True, bias=False)
verdict_flops([(replace(example, hidden=36, heads=6, kv_heads=2, ffn=50), 5, 7), (llama, 3, 8192)])
### END HIDDEN TESTS

# %% [markdown]
# ## crossover
#
# `crossover(sizes)`: the sequence length S, as a float, at which the two S x S products of a block cost as
# many FLOPs as its projections and feed-forward together. Beyond it, attention rules.
#
# *Example:* H = 64, MHA, F = 4H, not gated: 384 tokens, that is 6H. *Size:* about 3 lines, from your
# formulas; solve on paper.

# %% solution="crossover"
def crossover(sizes: SimpleNamespace) -> float:
    ### BEGIN SOLUTION
    once = layer_flops(sizes, 1, 1)
    return (once["projections"] + once["ffn"]) / once["attention"]  # linear in S against quadratic in S
    ### END SOLUTION


# %% test="flops_crossover" points=1
def probe_crossover(configs):
    return watched(lambda: [crossover(sizes_of(config)) for config in configs])


def attention_over_rest(config, S):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        Block(config)(torch.empty(1, S, config.hidden))
    products = counter.get_flop_counts()["Global"][torch.ops.aten.bmm]
    return products / (counter.get_total_flops() - products)


def counted_crossover(config):
    """The shortest S at which attention is no less than the rest, by torch's counter; halving the interval."""
    low, high = 0, 2**16
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if attention_over_rest(config, middle) < 1 else (low, middle)
    return high


def crossover_mistakes(config, S):
    h, kv = config.hidden, config.kv_hidden
    return {
        "only one of attention's two products was counted": 2 * S,
        "only the feed-forward was counted, without the projections": S - h - kv,
        "only the projections were counted, without the feed-forward": h + kv,
        "with fewer kv heads, k_proj and v_proj are narrower": S + h - kv,
        "a gated feed-forward has three products": S - config.ffn / 2,
        "6BSH^2, as in the lecture, has lost the width F": h + kv + 1.5 * h,
        "that is 6H, which holds for MHA and F = 4H": 6 * h,
    }


def verdict_crossover(configs):
    results, files = run_alone(probe_crossover, configs).value
    written_by_hand(files, "crossover")
    for got, config in zip(results, configs, strict=True):
        (got,) = check.numbers([got], 1, "crossover")
        around = [attention_over_rest(config, round_(got)) for round_ in (math.floor, math.ceil) if 1 <= got <= 2**20]
        if around and around[0] <= 1 <= around[1]:
            continue
        S = counted_crossover(config)
        what = f"crossover (H {config.hidden}, K*D {config.kv_hidden}, F {config.ffn}, gated {config.gated})"
        near = (text for text, value in crossover_mistakes(config, S).items() if abs(value - got) < 2)
        seen = f"at S = {S} the counter finds attention equal or ahead for the first time"
        raise check.CheckFailed(f"{what} is {got:g}, but {seen}{': ' + text if (text := next(near, '')) else ''}.")


verdict_crossover([TransformerConfig(hidden=64, heads=4)])
### BEGIN HIDDEN TESTS
llama = TransformerConfig(hidden=4096, heads=32, kv_heads=8, ffn=14336, gated=True, bias=False)
narrow = TransformerConfig(hidden=48, heads=6, kv_heads=2, ffn=100)
verdict_crossover([narrow, replace(narrow, gated=True, kv_heads=6), llama])
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. Questions
#
# The visible tests show only whether your answer has the right form.
#
# ## question_numbers
#
# Return a dictionary of numbers. A model has 7 billion (7e9) parameters and is trained with Adam in mixed
# precision as in this lab.
#
# 1. Its model states in GB (`"states_gb"`) and in GiB (`"states_gib"`)?
# 2. And in GB where gradients are summed in fp32 besides the bf16 ones (`"with_fp32_sums_gb"`)?
# 3. Eight cards of 80 GB train it with plain data parallelism. How many GB of model states are on **each**
#    card, if they fit or not (`"each_card_gb"`)?
# 4. In bf16, 1.0 is added to 0 again and again. At which number does the sum stop (`"bf16_stops_at"`)?
# 5. All blocks are checkpointed. FLOPs of a step over those without, as a fraction or decimal
#    (`"recompute_ratio"`)? Count the blocks only, and take it that each runs again as a whole.
# 6. H = 4096, MHA, F = 4H, not gated: from which S on does attention cost more than the rest of the block
#    (`"attention_rules_from"`)?

# %% solution="question_numbers"
def question_numbers() -> dict[str, float]:
    ### BEGIN SOLUTION
    return {
        "states_gb": 112,
        "states_gib": 112e9 / 2**30,
        "with_fp32_sums_gb": 140,
        "each_card_gb": 112,
        "bf16_stops_at": 256,
        "recompute_ratio": 4 / 3,
        "attention_rules_from": 24576,
    }
    ### END SOLUTION


# %% test="question_numbers_values" points=1
KEYS = ("states_gb", "states_gib", "with_fp32_sums_gb", "each_card_gb", "bf16_stops_at", "recompute_ratio")
answer = check.answer(run_alone(lambda: question_numbers()).value, "question_numbers")
for key in (*KEYS, "attention_rules_from"):
    check.has_number(answer, key, "question_numbers")
### BEGIN HIDDEN TESTS
def added_ones():
    total = torch.zeros((), dtype=bfloat16)
    while total + 1 != total:
        total += 1
    return total.item()


def flops_of_ten_blocks(apply):
    blocks, x = some_blocks(TransformerConfig(hidden=8, heads=2), 10), fill(1, 4, 8).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        for block in blocks:
            x = apply(block, x)
        x.sum().backward()
    return counter.get_total_flops()


bytes_each = torch.tensor([], dtype=bfloat16).element_size() * 2 + torch.tensor([], dtype=float32).element_size() * 3
ratio = here(flops_of_ten_blocks, oracle_checkpoint) / here(flops_of_ten_blocks, no_checkpoint)
wanted = {
    "states_gb": (7 * bytes_each, {"16 bytes a parameter": 14, "GiB or GB?": 7e9 * bytes_each / 2**30}),
    "states_gib": (7e9 * bytes_each / 2**30, {"GB or GiB?": 7 * bytes_each}),
    "with_fp32_sums_gb": (7 * (bytes_each + 4), {"18 is the convention without bf16 gradients": 7 * (bytes_each + 2)}),
    "each_card_gb": (7 * bytes_each, {"only sharding (ZeRO) divides it by the cards": 7 * bytes_each / 8}),
    "bf16_stops_at": (added_ones(), {}),
    "recompute_ratio": (ratio, {"the backward pass is two thirds of a step, the forward one third": 1.5}),
    "attention_rules_from": (6 * 4096, {"against the projections alone": 2 * 4096, "S = H is a rule of thumb": 4096}),
}
for key, (value, slips) in wanted.items():
    got = answer[key]
    if not math.isclose(got, value, rel_tol=0.004):
        hint = next((text for text, slip in slips.items() if math.isclose(got, slip, rel_tol=0.004)), "")
        raise check.CheckFailed(f'question_numbers: think again about "{key}"{" (" + hint + ")" if hint else ""}.')
### END HIDDEN TESTS

# %% [markdown]
# ## question_causes
#
# Return a dictionary with one letter, as a string, for each key.
#
# `"why_masters"`: mixed precision (混合精度) keeps an fp32 copy of the weights, because
#
# - A: the forward pass in bf16 needs it as its input.
# - B: updates are small next to the weights; added to bf16 weights they are rounded away.
# - C: gradients can only be sent between ranks in fp32.
# - D: bf16 cannot hold numbers as large as weights become.
#
# `"contradiction"`: does that contradict a forward pass in bf16?
#
# - A: Yes; the bf16 weights are kept only for the checkpoint file.
# - B: Yes; with masters, the forward pass runs in fp32.
# - C: No; each has its task: bf16 for computing, fp32 for adding up, and after each step bf16 is made from
#   fp32.
# - D: No; both copies are updated by Adam, and they stay equal.
#
# `"why_saves"`: checkpointing saves memory, because
#
# - A: activations are stored in bf16 instead of fp32.
# - B: the optimizer's states are written to disk.
# - C: only inputs of segments are kept; what is inside is forgotten after the forward pass.
# - D: gradients of checkpointed blocks are not needed.
#
# `"why_slower"`: it costs time, because
#
# - A: reading the stored activations takes longer.
# - B: the forward pass of each segment runs once more in the backward pass.
# - C: the backward pass runs twice.
# - D: the optimizer has more to do.
#
# `"not_reduced"`: what does checkpointing leave as it is?
#
# - A: the outputs of softmax in each block.
# - B: the inputs of GELU in each block.
# - C: q, k and v of each block.
# - D: Adam's moments.
#
# `"one_rank_overflows"`: with sharded gradients, rank 2 finds a NaN in its shard and skips the step; the
# others did not ask. What happens?
#
# - A: nothing bad: rank 2's shard is one step behind, and catches up.
# - B: the ranks' shards no longer belong to one model, and their loss scales differ: the model is torn
#   apart without any error message.
# - C: the next all-reduce raises an error.
# - D: the NaN spreads to all ranks.
#
# `"random_not_restored"`: a block with dropout is checkpointed, and random states are not restored. What is
# wrong?
#
# - A: the loss; the gradients belong to it.
# - B: nothing; dropout is random anyway.
# - C: the gradients: they belong to another mask than the loss that was computed.
# - D: the parameters cannot be updated.

# %% solution="question_causes"
def question_causes() -> dict[str, str]:
    ### BEGIN SOLUTION
    return {
        "why_masters": "B",
        "contradiction": "C",
        "why_saves": "C",
        "why_slower": "B",
        "not_reduced": "D",
        "one_rank_overflows": "B",
        "random_not_restored": "C",
    }
    ### END SOLUTION


# %% test="question_causes_letters" points=1
answer = check.answer(run_alone(lambda: question_causes()).value, "question_causes")
for key in ("why_masters", "contradiction", "why_saves", "why_slower", "not_reduced"):
    check.has_letter(answer, key, "ABCD", "question_causes")
for key in ("one_rank_overflows", "random_not_restored"):
    check.has_letter(answer, key, "ABCD", "question_causes")
### BEGIN HIDDEN TESTS
wanted = {"why_masters": "B", "contradiction": "C", "why_saves": "C", "why_slower": "B", "not_reduced": "D"}
wanted |= {"one_rank_overflows": "B", "random_not_restored": "C"}
check.answers_agree(answer, wanted, "question_causes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - 16 bytes a parameter before the first activation: 2 + 2 for computing, 4 + 4 + 4 for adding up. Ask
#   which convention somebody counts in.
# - What is added to often is kept in fp32. What decides for all ranks is decided by all ranks.
# - Activations grow with B, S and S²; checkpointing keeps the borders of segments, for a third more FLOPs.
# - Attention overtakes the rest of a block at S = H + K*D + (number of FFN matrices) * F/2: 6H in the plain
#   case.
