# %% [markdown]
# # 10 · What a Transformer layer computes
#
# **You will build** the list of all products in a Transformer block with their shapes and their
# floating-point operations, formulas for a layer and for a training step, and the curve that says from
# which sequence length on attention costs more than everything else. Each formula is held to torch's own
# counter.
#
# **You need** what a Transformer block is made of. No ranks this time.
#
# **Time**: about 40 minutes to read and try; 15 seconds to run.

# %%
from time import perf_counter

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from utils.models import Transformer, TransformerConfig, batches
from utils.pictures import rank_color

# %% [markdown]
# ## One product
#
# A product of an [m, k] and a [k, n] matrix has m n results. Each is a sum of k products: k multiplications
# and k additions (one of them to zero). So it takes **m k n multiply-adds**, which are **2 m k n
# floating-point operations** (浮点运算, FLOPs). (The lecture says "about 2mkn multiply-adds". It is 2mkn
# operations, or mkn multiply-adds. FLOP/s, with an s below the line, is a speed.)
#
# **Predict.** [2, 3] x [3, 4]: how many FLOPs? What does torch's counter say, which watches the operators
# that run?

# %%
def counted(work):
    """FLOPs of what `work()` runs: all products, nothing elementwise."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


print("by hand: 2 * 2 * 3 * 4 =", 2 * 2 * 3 * 4)
print("counted:", counted(lambda: torch.zeros(2, 3) @ torch.zeros(3, 4)))
print("counted, a relu of a million numbers:", counted(lambda: torch.zeros(10**6).relu()))

# %% [markdown]
# The counter counts products only. A relu, a norm or a softmax costs a few operations for each number, a
# product k of them; with k in the thousands the rest does not matter **for FLOPs**. (For time it can: they
# still read and write memory.)
#
# ## All products of a block
#
# B sequences of S tokens, hidden size H, N heads of D = H/N, feed-forward width F = 4H. The block's
# products:
#
# **Predict.** Before you run the cell, write the shapes down, and decide which of the rows grow with S
# squared.

# %%
def products(b, s, h, heads, ffn, gated=False):
    """name -> (how many, m, k, n) of every product in a block, plain attention (as many KV heads as heads)."""
    d = h // heads
    table = {f"{name} projection": (1, b * s, h, h) for name in ("query", "key", "value")}
    table["scores Q K^T"] = (b * heads, s, d, s)
    table["weights V"] = (b * heads, s, s, d)
    table["output projection"] = (1, b * s, h, h)
    if gated:
        table["feed-forward gate"] = (1, b * s, h, ffn)
    table["feed-forward up"] = (1, b * s, h, ffn)
    table["feed-forward down"] = (1, b * s, ffn, h)
    return table


def flops(product):
    many, m, k, n = product
    return 2 * many * m * k * n


MODULE = {f"{name} projection": f"attention.{name[0]}_proj" for name in ("query", "key", "value", "output")}
MODULE |= {f"feed-forward {name}": f"feed_forward.{name}" for name in ("gate", "up", "down")}


def block_counts(b, s, h, heads, ffn, gated=False, **options):
    """FLOPs that torch counts in one block of the course's Transformer, by module name. No memory is used."""
    config = TransformerConfig(hidden=h, heads=heads, ffn=ffn, gated=gated, layers=1, max_len=s, **options)
    with torch.device("meta"):  # tensors with a shape and nothing in it
        block, x = Transformer(config).blocks[0], torch.empty(b, s, h)
        with FlopCounterMode(display=False) as counter:
            block(x)
    by_name = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    return {name.removeprefix("Block.").removeprefix("Global."): total for name, total in by_name.items()}


B, S, H, HEADS = 2, 512, 256, 4
table, seen = products(B, S, H, HEADS, 4 * H), block_counts(B, S, H, HEADS, 4 * H)
print(f"{'':>20}  {'products':>8}  {'shapes':>24}  {'2mkn':>14}  counted")
for name, (many, m, k, n) in table.items():
    found = f"{seen[MODULE[name]]:,}" if name in MODULE else "(below)"
    shapes, by_hand = f"[{m}, {k}] x [{k}, {n}]", flops((many, m, k, n))
    print(f"{name:>20}  {many:8}  {shapes:>24}  {by_hand:14,}  {found}")
inside = sum(flops(table[name]) for name in table if name not in MODULE)
own = seen["attention"] - sum(seen[MODULE[name]] for name in table if "projection" in name)
print(f"the two products of attention itself: {inside:,}, counted {own:,}")

# %% [markdown]
# Add up the rows. The four projections: 4 x 2 BS H H = **8 B S H²**. The two products of attention: 2 x 2
# BN S S D = **4 B S² H** (N D = H). The feed-forward: 2 x 2 BS H 4H = **16 B S H²**.
#
# The lecture writes 8BSH² + 4BS²H + **6**BSH². The counter decides.
#
# **Predict.** Which of the two sums is the count? Where could the lecture's 6 come from?

# %%
total = block_counts(B, S, H, HEADS, 4 * H)["Global"]
print(f"counted                   {total:>14,}")
print(f"8BSH^2 + 4BS^2H + 16BSH^2 {8 * B * S * H**2 + 4 * B * S**2 * H + 16 * B * S * H**2:>14,}")
print(f"8BSH^2 + 4BS^2H +  6BSH^2 {8 * B * S * H**2 + 4 * B * S**2 * H + 6 * B * S * H**2:>14,}")
for width in (H, 4 * H, 8 * H // 3):
    counts = block_counts(B, S, H, HEADS, width, gated=True)
    print(f"gated feed-forward, F = {width:4}: counted {counts['feed_forward']:,}, 6BSHF = {6 * B * S * H * width:,}")
print(f"dense feed-forward, F = {4 * H:4}: counted {block_counts(B, S, H, HEADS, 4 * H)['feed_forward']:,}")

# %% [markdown]
# 16 for a dense feed-forward of width 4H. A *gated* one (门控前馈网络; three matrices, as in Llama) of width F
# costs 3 x 2 BSHF = **6 B S H F**: the 6 is right, and the F got lost; it would be 6BSH² only with F = H.
# Gated models choose F near 8H/3: then 6BSHF = 16BSH², the cost of the dense one, to within rounding.
#
# ## When attention overtakes
#
# 4BS²H grows with S squared, all the rest, 24BSH², with S. The lecture says: for S > H attention becomes
# the bottleneck.
#
# **Predict.** What share of a block is attention at S = H? At which S is it as much as the projections, as
# the feed-forward, as both together?

# %%
def share(s, h):
    return 4 * s**2 * h / (4 * s**2 * h + 24 * s * h**2)


H, HEADS = 4096, 32
LENGTHS = [H // 8 * 2**k for k in range(9)]
attention, rest = [], []
for s in LENGTHS:
    counts = block_counts(1, s, H, HEADS, 4 * H)
    split = sum(counts[name] for name in MODULE.values() if name in counts)
    attention.append(counts["Global"] - split)
    rest.append(split)
    part = attention[-1] / counts["Global"]
    print(f"S = {s:6} = {s / H:6.3f} H: attention {part:6.1%}, predicted {share(s, H):6.1%}")

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for name, points, formula, color in (
    ("attention", attention, lambda s: 4 * s**2 * H, rank_color(0)),
    ("projections and feed-forward", rest, lambda s: 24 * s * H**2, rank_color(1)),
):
    ax.plot(LENGTHS, points, "o", color=color, label=f"{name}, counted")
    ax.plot(LENGTHS, [formula(s) for s in LENGTHS], "--", color=color, label=f"{name}, formula")
ax.axvline(6 * H, color="#BBBBBB", linewidth=1)
ax.annotate("S = 6H", (6 * H, attention[1]), xytext=(6, 0), textcoords="offset points", fontsize=9)
ax.set(xscale="log", yscale="log", xlabel="sequence length S (H = 4096)", ylabel="FLOPs of one block")
ax.set_xticks(LENGTHS, [f"{s // 1024 or s / 1024:g}k" for s in LENGTHS])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# At S = H attention is one seventh of the block. It meets the projections at S = 2H (4S = 8H), the
# feed-forward at S = 4H, and everything together at **S = 6H**: 24 576 tokens for H = 4096. "S > H" is
# where it begins to be felt.
#
# ## Half of it is masked
#
# In causal attention a token looks only back. Scores above the diagonal are computed and thrown away, or
# not computed.
#
# **Predict.** What does the counter say of torch's own attention with `is_causal=True`, and of one in
# blocks that skips what lies wholly in the future, for 4 and for 16 blocks?

# %%
def blockwise(q, k, v, blocks):
    """Causal attention in blocks of queries, each against the keys up to its end."""
    size, out = q.shape[2] // blocks, []
    for i in range(blocks):
        end = (i + 1) * size
        mine, keys, values = q[:, :, i * size : end], k[:, :, :end], v[:, :, :end]
        scores = mine @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5
        later = torch.arange(end)[None, :] > torch.arange(i * size, end)[:, None]
        out.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ values)
    return torch.cat(out, dim=2)


q, k, v = (torch.randn(1, 4, 512, 32) for _ in range(3))
dense = F.scaled_dot_product_attention(q, k, v, is_causal=True)
full = 4 * 512 * 512 * 4 * 32
fused = counted(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)) / full
print(f"torch's own, one fused operator on {q.device.type}: {fused:.4f} of 4BS^2H")
for blocks in (1, 4, 16):
    same = torch.allclose(blockwise(q, k, v, blocks), dense, atol=1e-5)
    part = counted(lambda blocks=blocks: blockwise(q, k, v, blocks)) / full
    print(f"{blocks:2} blocks: {part:.4f} of 4BS^2H, predicted {(1 + 1 / blocks) / 2:.4f}; same result: {same}")

# %% [markdown]
# The first line is a warning: a counter counts the operators in its list, and torch 2.13's does not know
# the fused attention of the CPU. Zero FLOPs, right result. (Which is why this notebook's model writes its
# products out.)
#
# With n blocks (1 + 1/n)/2 of the work is left, in the limit half. The counter (and Megatron's, PaLM's and
# Chinchilla's formulas) take attention as **full**; FlashAttention's papers count a causal one **half**. A
# "model FLOPs utilisation" means nothing until one says which. Here: full, unless said otherwise.
#
# ## A training step: 6N
#
# A product Y = XW has two products in its backward pass, dX = dY Wᵀ and dW = Xᵀ dY, each as large. So
# backward costs twice the forward pass, a step three times. And a weight matrix [k, n] costs 2kn for each
# token, twice its parameters. For N parameters: 2N for a token forward, **6N** for a token in training.
#
# **Predict.** For which parameters is "2 FLOPs a token" wrong? What does 6N leave out? Will it be too high
# or too low for the course's small model?

# %%
def step_flops(config, b, s):
    """FLOPs that torch counts in a forward and a backward pass."""
    with torch.device("meta"):
        model, tokens = Transformer(config), torch.zeros(b, s, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            loss = model(tokens).sum()
            forward = counter.get_total_flops()
            loss.backward()
    return forward, counter.get_total_flops()


def matrix_parameters(config):
    """Parameters that stand in a product for every token: the weights of the blocks, and the output matrix."""
    block = 4 * config.hidden**2 + 2 * config.hidden * config.ffn
    return config.layers * block + config.vocab_size * config.hidden


SIZES = {
    "course": (TransformerConfig(hidden=64, layers=2, heads=4, max_len=64), 64),
    "course, S = 1024": (TransformerConfig(hidden=64, layers=2, heads=4, max_len=1024), 1024),
    "large vocabulary": (TransformerConfig(vocab_size=50257, hidden=64, layers=2, heads=4, tied=False), 64),
    "GPT-2 small": (TransformerConfig(vocab_size=50257, hidden=768, layers=12, heads=12, max_len=1024), 1024),
    "7B": (TransformerConfig(vocab_size=32000, hidden=4096, layers=32, heads=32, tied=False, max_len=4096), 4096),
    "GPT-3 175B": (TransformerConfig(vocab_size=51200, hidden=12288, layers=96, heads=96, max_len=2048), 2048),
}
print(f"{'':>17}  {'N':>8}  backward/forward   counted a token   6N/counted   (6N + 12LHS)/counted")
for name, (config, s) in SIZES.items():
    forward, step = step_flops(config, 1, s)
    matrices, extra = matrix_parameters(config), 12 * config.layers * config.hidden * s
    n = config.num_parameters()
    print(
        f"{name:>17}  {n:8.2g}  {step / forward - 1:16.2f}  {step / s:16.4g}   {6 * n / (step / s):10.3f}"
        f"   {(6 * matrices + extra) / (step / s):20.4f}"
    )

# %% [markdown]
# The last column, with N counted over matrices only and **12 L H S** added for attention (4S²H a sequence,
# so 4SH a token and layer, times 3), is exact: this is the formula of PaLM (6N + 12 L H Q T, where its H Q
# is our H). 6N alone misses in two directions:
#
# - *too low* where S is not small against 6H: attention has no parameters;
# - *too high* where much of N only looks things up: positions, and an embedding that is not also the output
#   matrix (the third row). Norms and biases cost next to nothing either.
#
# For large models at S << 6H it is good to some per cent, and so convenient that everybody uses it.
# Chinchilla's table, for example, for models of N parameters and D tokens:

# %%
CHINCHILLA = {  # parameters, tokens, FLOPs: table 3 of the paper (Hoffmann et al. 2022, arXiv 2203.15556)
    "400M": (400e6, 8.0e9, 1.92e19),
    "1B": (1e9, 20.2e9, 1.21e20),
    "10B": (10e9, 205.1e9, 1.23e22),
    "67B": (67e9, 1.5e12, 5.76e23),
    "175B": (175e9, 3.7e12, 3.85e24),
    "1T": (1e12, 21.2e12, 1.27e26),
}
for name, (n, tokens, paper) in CHINCHILLA.items():
    print(f"{name:>5}: 6ND = {6 * n * tokens:.3g}, the paper's table {paper:.3g}, ratio {6 * n * tokens / paper:.3f}")

# %% [markdown]
# (67B is off by rounding: its 1.5T tokens are printed with two digits.)
#
# Megatron's formula for a step, 72 B L S H² (1 + S/(6H) + V/(12 L H)), says the same once more: 72 = 3 x
# 24, S/(6H) is attention against the rest, the last term is the output matrix. With *full recomputation*
# (激活检查点, activation checkpointing) the blocks are run forward twice, and 72 becomes 96.
#
# **Predict.** GPT-3 (175B, 96 layers, H = 12288, V = 51200, S = 2048) on 300B tokens, 1024 GPUs that each
# reach 140 TFLOP/s, with full recomputation: how many days?

# %%
config, s = SIZES["GPT-3 175B"]
layers, h, vocab = config.layers, config.hidden, config.vocab_size
megatron = 72 * layers * s * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))
print(f"a sequence: counted {step_flops(config, 1, s)[1]:.5g}, Megatron's formula {megatron:.5g}")
recomputed = 96 * layers * s * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
days = recomputed * (300e9 / s) / (1024 * 140e12) / 86400
print(f"with recomputation: {days:.1f} days; the paper's estimate 8 N D / (n X): ", end="")
print(f"{8 * 175e9 * 300e9 / (1024 * 140e12) / 86400:.1f} days, which it prints as 34")

# %% [markdown]
# ## FLOPs are not seconds
#
# On this machine: measure the speed of one large product, predict the time of a block's forward pass from
# its FLOPs, and compare.
#
# **Predict.** Where will the prediction be worse, at short or at long sequences? Which way?

# %%
def fastest(work, tries=5):
    work()
    seconds = []
    for _ in range(tries):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return min(seconds)


torch.set_num_threads(1)  # so that numbers do not depend on how many cores are free
left, right = torch.randn(1024, 256), torch.randn(256, 1024)
speed = 2 * 1024 * 256 * 1024 / fastest(lambda: left @ right)
print(f"one product of [1024, 256] x [256, 1024]: {speed / 1e9:.0f} GFLOP/s on one thread")

h, heads = 128, 4
lengths, guesses, took = [64, 128, 256, 512, 1024], [], []
torch.manual_seed(0)
block = Transformer(TransformerConfig(hidden=h, heads=heads, layers=1, max_len=max(lengths))).blocks[0].eval()
for s in lengths:
    x = torch.randn(1, s, h)
    with torch.no_grad():
        work = counted(lambda x=x: block(x))
        took.append(fastest(lambda x=x: block(x)))
    guesses.append(work / speed)
    times = f"predicted {guesses[-1] * 1e3:6.2f} ms, measured {took[-1] * 1e3:6.2f} ms"
    print(f"S = {s:5}: {work / 1e6:7.1f} MFLOP, {times}; attention is {share(s, h):.0%} of the FLOPs")
figure, ax = plt.subplots(figsize=(5.8, 3.4), layout="constrained")
ax.plot(lengths, [t * 1e3 for t in guesses], "--", color=rank_color(1), label="FLOPs / speed of a product")
ax.plot(lengths, [t * 1e3 for t in took], "o", color=rank_color(0), label="measured")
ax.set(xscale="log", yscale="log", xlabel="sequence length S (H = 128)", ylabel="forward pass of a block, ms")
ax.set_xticks(lengths, [str(s) for s in lengths])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# The measured time is above the line, most of all where S is long: softmax, mask and scaling touch S x S
# numbers several times, and count as zero FLOPs. At this size memory traffic, not arithmetic, is the cost.
# This is what FlashAttention removes (notebook 13): not the FLOPs, but the S x S matrix.
#
# One thing more: real text through a real model, counted once.
#
# **Predict.** Four sequences of 64 bytes through the course's model, forward and backward: how many FLOPs
# do 6N + 12LHS predict?

# %%
config = TransformerConfig(hidden=64, layers=2, heads=4, max_len=64)
model, (tokens, targets) = Transformer(config), next(batches(4, 64, steps=1))
per_token = 6 * matrix_parameters(config) + 12 * config.layers * config.hidden * 64
print(f"predicted {per_token * tokens.numel():,}, counted {counted(lambda: model.loss(tokens, targets).backward()):,}")

# %% [markdown]
# ## What to take with you
#
# - [m, k] x [k, n]: 2mkn FLOPs, mkn multiply-adds.
# - A block forward: 8BSH² (projections) + 4BS²H (attention) + 16BSH² (dense, 4H) or 6BSHF (gated).
# - Attention is 1/7 of it at S = H, and half at S = 6H. Say whether causal attention is counted full or
#   half.
# - Training: three times forward. 6N a token, plus 12LHS for attention; N over the matrices.
# - FLOPs tell you what cannot be avoided. Seconds also depend on memory: measure.
#
# **Next**: [lab 07](../labs/lab07_mesh/lab07_mesh.ipynb) plans whole machines with such formulas. Notebook
# 13 takes the S x S matrix away.
