# %% [markdown]
# # 01 · One training step
#
# **You will build** one training step, five times: on one rank, and on two ranks in the four ways in which
# a step can be divided. Then you fill the lecture's table of schemes with measured numbers: what a rank
# stores, what it computes, what it exchanges.
#
# **You need** notebook [00](00_start_here.ipynb) (how `launch` starts ranks), and to have trained some
# model in torch. The collectives are explained as they come; notebook [02](02_collectives.ipynb) builds
# them.
#
# **Time**: about 50 minutes to read and try; 15 seconds to run.

# %%
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from utils import launch
from utils.memory import LiveBytes, nbytes
from utils.models import Transformer, TransformerConfig, batches
from utils.pictures import rank_color, size_label

torch.set_num_threads(1)  # as the ranks do: small matrices gain nothing from more

# %% [markdown]
# ## The step
#
# Whatever is divided later, a training step stays these four lines: **forward** (前向), **loss** (损失),
# **backward** (反向), **update** (更新).
#
# ```
# logits = model(tokens)                     # forward: keeps activations (激活) for backward
# loss = cross_entropy(logits, targets)
# loss.backward()                            # backward: a gradient for each parameter
# optimizer.step()                           # update
# ```
#
# Here is one, of a small Transformer on real text (the source of Python's standard library; a byte is a
# token), 8 samples of 32 tokens.
#
# **Predict.** The model has about 35 000 parameters of 4 bytes. When is memory highest: after forward,
# after backward, after the update? And what is most of it?

# %%
CONFIG = TransformerConfig(hidden=32, layers=2, heads=2, max_len=32)
LR = 0.2


def one_step(tokens, targets):
    torch.manual_seed(0)
    model = Transformer(CONFIG)
    with LiveBytes(model.parameters()) as live:
        live.mark("start")
        loss = model.loss(tokens, targets)
        live.mark("forward")
        loss.backward()
        live.mark("backward")
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
        live.mark("update")
    return loss.item(), model, live.marks


tokens, targets = next(batches(8, 32, steps=1))
loss, model, marks = one_step(tokens, targets)
print(f"{CONFIG.num_parameters()} parameters; loss {loss:.3f} nats a byte (guessing: ln 256 = 5.545)")
for name, (now, _) in marks.items():
    print(f"after {name:>8}: {size_label(now)}")

# %% [markdown]
# Forward leaves the activations, far more than the parameters; backward frees them and leaves the
# gradients, as large as the parameters. Notebook 05 takes this apart. Remember the four things that take
# memory: **parameters, gradients, optimizer state, activations**.
#
# ## The same step on two ranks
#
# Now the lecture's example: a **global batch** (全局批) of 8 samples. Rank 0 works on samples 0 to 3, rank 1
# on 4 to
# 7. Both hold the whole model W, the same at the start. Each gets a gradient of its own samples only, and
#    an **all-reduce** (全规约) adds the two and gives the sum to both: g = (g_0 + g_1) / 2.
#
# **Predict.** Look at one weight. Is g_0 equal to g_1? Is their mean equal to the gradient that one rank
# gets from all 8 samples, and why does this hold for the mean of the losses?

# %%
def step_on_two(tokens, targets):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Transformer(CONFIG)
    loss = model.loss(tokens.tensor_split(world)[rank], targets.tensor_split(world)[rank])
    loss.backward()
    local = model.blocks[0].attention.q_proj.weight.grad[0, :3].tolist()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
        with torch.no_grad():
            p -= LR * p.grad
    shared = model.blocks[0].attention.q_proj.weight.grad[0, :3].tolist()
    return loss.item(), local, shared, [p.detach() for p in model.parameters()]


run = launch(step_on_two, tokens, targets, ranks=2)
whole = model.blocks[0].attention.q_proj.weight.grad[0, :3].tolist()


def row(values):
    return "  ".join(f"{1e4 * v:8.3f}" for v in values)


print("three elements of one gradient, times 10 000")
for rank in range(2):
    print(f"g_{rank}, of 4 samples:  {row(run.values[rank][1])}    loss {run.values[rank][0]:.4f}")
print(f"mean, on both:     {row(run.values[0][2])}    mean loss {(run.values[0][0] + run.values[1][0]) / 2:.4f}")
print(f"one rank, all 8:   {row(whole)}    loss {loss:.4f}")
gap = max((a - b).abs().max().item() for a, b in zip(run.values[1][3], model.parameters(), strict=True))
print(f"after the update: rank 1's parameters differ from the single rank's by at most {gap:.1e}")

# %% [markdown]
# The mean over 8 samples is the mean of two means over 4, and the gradient of a mean is the mean of
# gradients. So two ranks did *the same step* as one, each with half of the work.
#
# This divided the **batch**. The model can be divided instead. For each way, ask three questions: *what
# does a rank store, what does it compute, what does it exchange?*
#
# ## A model with nothing in the way
#
# To see the differences bare we take two matrices: $h = \mathrm{relu}(x W_1^T)$, $y = h W_2^T$, and half
# the squared distance of y from a target, averaged over the samples. Backward by hand is four lines. The
# optimizer is SGD with **momentum** (动量), so that there is some optimizer state: a third tensor for each
# parameter.

# %%
BATCH, HIDDEN, INNER, STEP, MOMENTUM = 32, 64, 256, 0.1, 0.9


def weights():
    """W1 [INNER, HIDDEN] and W2 [HIDDEN, INNER], the same on every rank."""
    make = torch.Generator().manual_seed(1)
    return [torch.randn(INNER, HIDDEN, generator=make) / 8, torch.randn(HIDDEN, INNER, generator=make) / 16]


def data(part=slice(None)):
    """x and target, [BATCH, HIDDEN] each, or some of their rows."""
    make = torch.Generator().manual_seed(2)
    return [torch.randn(BATCH, HIDDEN, generator=make)[part].clone() for _ in range(2)]


@dataclass
class State:
    """What a rank stores from step to step, one tensor of each kind for each weight (or shard) that it has."""

    params: list
    grads: list
    momentum: list

    @classmethod
    def of(cls, params):
        return cls(params, [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params])

    def update(self):
        for p, g, m in zip(self.params, self.grads, self.momentum, strict=True):
            m.mul_(MOMENTUM).add_(g)
            p.sub_(STEP * m)


class Flops(TorchDispatchMode):
    """Sees every operator that torch runs; torch knows the operations of each product from its shapes."""

    total = 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled here, and torch's compiler takes a second to load

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_counter.flop_registry:
            self.total += flop_counter.flop_registry[func._overloadpacket](*args, out_val=out)
        return out


def measured(step, state):
    """Run one step; what was stored, the highest memory, and the floating-point operations."""
    stored = [*state.params, *state.grads, *state.momentum]
    with LiveBytes(stored) as live, Flops() as flops:
        step()
        state.update()
        peak = live.peak()
    return {"kept": nbytes(stored), "peak": peak, "flops": flops.total, "params": state.params}


# %% [markdown]
# ## One rank
#
# **Predict.** Count: a product [m,k] x [k,n] takes 2mkn floating-point operations. How many products are
# there in forward and backward, and what do they add up to for 32 samples, 64 x 256? (We need no gradient
# of x.)

# %%
def on_one_rank():
    x, target = data()
    state = State.of(weights())

    def step():
        w1, w2 = state.params
        h = torch.relu(x @ w1.T)  # forward
        y = h @ w2.T
        dy = (y - target) / BATCH  # loss: half the squared distance, averaged over the batch
        state.grads[1].copy_(dy.T @ h)  # backward
        dh = (dy @ w2) * (h > 0)
        state.grads[0].copy_(dh.T @ x)

    return measured(step, state)


one = launch(on_one_rank, ranks=1)
print(f"counted: {one.value['flops']:,} operations; by hand 5 x 2 x 32 x 64 x 256 = {5 * 2 * 32 * 64 * 256:,}")
state_bytes = 3 * 4 * 2 * HIDDEN * INNER
print(f"kept: {one.value['kept']:,} bytes; by hand 3 kinds x 4 bytes x 2 x 64 x 256 = {state_bytes:,}")

# %% [markdown]
# ## Four ways to divide it by two
#
# **1. Data parallel** (数据并行, DP): each rank has everything, and half of the samples.
#
# **2. Tensor parallel** (张量并行, TP): each rank has half of *each matrix*. W1 is cut by its rows, so each
# rank makes half of h; W2 by its columns, so each rank makes a *partial* y from its half of h, and an
# all-reduce adds the two. All samples are on both ranks.
#
# **3. Pipeline parallel** (流水线并行, PP): rank 0 has W1, rank 1 has W2. h is sent forward, its gradient back.
#
# **4. Sharded state** (ZeRO / FSDP): data parallel again, but each rank *keeps* only half of the
# parameters, gradients and momentum. A matrix is put together just before it is used (all-gather, 全收集) and
# dropped after; gradients are added and each rank keeps its half (reduce-scatter, 规约分发).
#
# **Predict.** Before you run it, fill the table for yourself. For each of the four: the bytes kept (393 216
# on one rank), the operations (5 242 880 on one rank), and what is sent: which tensor, how large?

# %%
def data_parallel():
    rank, world = dist.get_rank(), dist.get_world_size()
    x, target = data(slice(rank * BATCH // world, (rank + 1) * BATCH // world))
    state = State.of(weights())

    def step():
        w1, w2 = state.params
        h = torch.relu(x @ w1.T)
        dy = (h @ w2.T - target) / len(x)  # the mean over this rank's samples
        state.grads[1].copy_(dy.T @ h)
        dh = (dy @ w2) * (h > 0)
        state.grads[0].copy_(dh.T @ x)
        for g in state.grads:
            dist.all_reduce(g)
            g /= world

    return measured(step, state)


def tensor_parallel():
    rank, world = dist.get_rank(), dist.get_world_size()
    x, target = data()
    w1, w2 = weights()
    state = State.of([w1.tensor_split(world, 0)[rank].clone(), w2.tensor_split(world, 1)[rank].clone()])

    def step():
        w1, w2 = state.params
        h = torch.relu(x @ w1.T)  # this rank's half of h: [BATCH, INNER / 2]
        y = h @ w2.T  # a partial sum of all of y
        dist.all_reduce(y)
        dy = (y - target) / BATCH
        state.grads[1].copy_(dy.T @ h)
        dh = (dy @ w2) * (h > 0)
        state.grads[0].copy_(dh.T @ x)

    return measured(step, state)


def pipeline():
    rank = dist.get_rank()
    x, target = data()
    state = State.of([weights()[rank]])
    h = torch.empty(BATCH, INNER)

    def first_stage():
        out = torch.relu(x @ state.params[0].T)
        dist.send(out, 1)
        dh = torch.empty(BATCH, INNER)
        dist.recv(dh, 1)
        state.grads[0].copy_((dh * (out > 0)).T @ x)

    def second_stage():
        dist.recv(h, 0)
        dy = (h @ state.params[0].T - target) / BATCH
        dist.send(dy @ state.params[0], 0)
        state.grads[0].copy_(dy.T @ h)

    return measured(second_stage if rank else first_stage, state)


def sharded_state():
    rank, world = dist.get_rank(), dist.get_world_size()
    x, target = data(slice(rank * BATCH // world, (rank + 1) * BATCH // world))
    state = State.of([w.tensor_split(world)[rank].clone() for w in weights()])

    def whole(k):
        shard = state.params[k]
        full = torch.empty(world * shard.shape[0], shard.shape[1])
        dist.all_gather_single(full, shard)
        return full

    def keep_share(k, gradient):
        dist.reduce_scatter_single(state.grads[k], gradient)
        state.grads[k] /= world

    def step():
        h = torch.relu(x @ whole(0).T)  # each matrix is dropped as soon as its product is done
        dy = (h @ whole(1).T - target) / len(x)
        keep_share(1, dy.T @ h)
        dh = (dy @ whole(1)) * (h > 0)
        keep_share(0, dh.T @ x)

    return measured(step, state)


SCHEMES = {
    "one rank": one,
    "data parallel": launch(data_parallel, ranks=2),
    "tensor parallel": launch(tensor_parallel, ranks=2),
    "pipeline": launch(pipeline, ranks=2),
    "sharded state": launch(sharded_state, ranks=2),
}
print(f"{'':>16}  {'kept':>8}  {'peak':>8}  {'operations':>10}  {'sent':>8}   by")
for name, run in SCHEMES.items():
    for rank, value in enumerate(run.values):
        ops = run.trace.ops(rank)
        by = ", ".join(f"{ops.count(op)} {op}" for op in dict.fromkeys(ops)) or "nothing"
        sent = size_label(run.trace.bytes_sent(rank))
        label = name if len(run.values) == 1 else f"{name} {rank}"
        print(
            f"{label:>17} {size_label(value['kept']):>8}  {size_label(value['peak']):>8}  "
            f"{value['flops']:>10,}  {sent:>8}   {by}"
        )

# %% [markdown]
# *Kept* is the state from step to step, *peak* the most that was alive at any moment of the step, on each
# rank.
#
# ## Is it the same step?
#
# All five should have made the same new weights.
#
# **Predict.** Bit for bit, or only up to rounding? For which schemes?

# %%
def put_together(name, run):
    """The whole new W1 and W2 from what the ranks hold."""
    shards = [value["params"] for value in run.values]
    if name == "tensor parallel":
        return torch.cat([s[0] for s in shards], 0), torch.cat([s[1] for s in shards], 1)
    if name == "pipeline":
        return shards[0][0], shards[1][0]
    if name == "sharded state":
        return tuple(torch.cat([s[k] for s in shards]) for k in range(2))
    return tuple(shards[-1])


right = put_together("one rank", one)
moved = max((a - b).abs().max().item() for a, b in zip(right, weights(), strict=True))
print(f"the step moved the weights by up to {moved:.1e}")
for name, run in SCHEMES.items():
    gap = max((a - b).abs().max().item() for a, b in zip(put_together(name, run), right, strict=True))
    print(f"{name:>16}: differs from one rank by at most {gap:.1e}")

# %% [markdown]
# The pipeline does the same products with the same numbers in another place; the others add in another
# order. **None of the schemes changes the mathematics.** They change where numbers are, and when they
# travel.
#
# ## The table, as a picture
#
# **Predict.** Which scheme is best in all three?

# %%
def picture(schemes):
    figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained", sharey=True)
    quantities = {
        "state kept (KiB)": lambda run, r: run.values[r]["kept"] / 1024,
        "operations (millions)": lambda run, r: run.values[r]["flops"] / 1e6,
        "sent in a step (KiB)": lambda run, r: run.trace.bytes_sent(r) / 1024,
    }
    for ax, (title, of) in zip(axes, quantities.items(), strict=True):
        for row, run in enumerate(schemes.values()):
            ranks = len(run.values)
            for r in range(ranks):
                ax.barh(row + 0.4 * r * (ranks > 1), of(run, r), 0.38, color=rank_color(r))
        ax.set_title(title, fontsize=10, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks([k + 0.2 * (k > 0) for k in range(len(schemes))], schemes)
    axes[0].invert_yaxis()
    plt.show()


picture(SCHEMES)

# %% [markdown]
# None. Each rank does about half of the work in all four. (The pipeline's stages are equal only if their
# layers cost the same: rank 0 needs no gradient of x.) Beyond that:
#
# | divided | a rank keeps | it sends in a step | relieves |
# |---|---|---|---|
# | the batch (DP) | everything | gradients: 2(p-1)/p of the **parameters** | time per batch |
# | the state too (ZeRO) | 1/p of the state | up to 3(p-1)/p of the **parameters** | memory of the state |
# | each matrix (TP) | 1/p of each matrix | **activations**, in each layer | matrices too large |
# | the layers (PP) | its layers | **activations** at the cut, there and back | depth, with little traffic |
#
# Sharded state gathers each matrix twice and reduces it once, three times (p-1)/p of its bytes; here W1 was
# not needed in backward, so it was five half matrices of 32 KiB in place of six. In a longer model TP has a
# second all-reduce for each pair of matrices: that of the gradient of x.
#
# (The lecture's last row divides the sequence: context parallel, 上下文并行. Notebook 13.)
#
# Two kinds of traffic, then: that of **parameters**, which does not care how large the batch is, and that
# of **activations**, which grows with it.
#
# ## When the batch grows
#
# **Predict.** With four times the samples: which of the bars for "sent" grow, and how do DP and TP compare
# then?

# %%
before = {name: run.trace.bytes_sent(0) for name, run in SCHEMES.items()}
BATCH = 128
larger = {
    "data parallel": launch(data_parallel, ranks=2),
    "tensor parallel": launch(tensor_parallel, ranks=2),
    "pipeline": launch(pipeline, ranks=2),
    "sharded state": launch(sharded_state, ranks=2),
}
for name, run in larger.items():
    now, flops = run.trace.bytes_sent(0), run.values[0]["flops"]
    print(
        f"{name:>16}: sent {size_label(before[name]):>8} -> {size_label(now):>8}   "
        f"{flops / now:5.0f} operations for each byte sent"
        f" (before: {SCHEMES[name].values[0]['flops'] / before[name]:.0f})"
    )

# %% [markdown]
# DP and sharded state send the same for any batch: a larger batch on each rank buys more computing for each
# byte. TP and PP send four times as much for four times the work. That is why TP lives inside one machine,
# on its fastest links, why DP goes across machines with large batches, and why large runs combine them: the
# number of GPUs is the product of the dimensions.
#
# The other direction matters too: the *model* grows with the square of its width, activations only in step
# with it.
#
# ## What to take with you
#
# - A step is forward, loss, backward, update, however it is divided. The result is the same up to rounding.
# - Ask of each scheme: what does a rank store, compute, exchange? And measure it.
# - DP keeps everything everywhere. ZeRO/FSDP keeps 1/p and pays with traffic. TP and PP divide the model.
# - Traffic of parameters does not depend on the batch; traffic of activations grows with it.
# - Inference needs no gradients, no optimizer and no kept activations: what it keeps instead is the KV
#   cache (notebook 11).
#
# **Next**: notebook [02](02_collectives.ipynb) builds the collectives used here,
# [04](04_data_parallel.ipynb) data parallelism.
