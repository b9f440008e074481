# %% [markdown]
# # 05 · Where does the memory go?
#
# **You will build** a ledger that predicts the memory of a training step to the byte, the fp32 master
# weights that keep bf16 training alive, a loss scale that two ranks agree on, a formula for the activations
# of a block, and checkpointing by hand.
#
# **You need** notebook [00](00_start_here.ipynb) (ranks) and a training loop in PyTorch. Nothing here needs
# a GPU.
#
# **Time**: about 60 minutes to read and try; 40 seconds to run.

# %%
from time import perf_counter

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from torch.utils.flop_counter import FlopCounterMode

from utils import launch
from utils.memory import LiveBytes, nbytes, saved_bytes
from utils.models import Block, Transformer, TransformerConfig, batches
from utils.pictures import RANK_COLORS, size_label

MIB = 2**20
torch.set_num_threads(1)
torch.manual_seed(0)

# %% [markdown]
# ## The states of a model
#
# The lecture's ledger for mixed precision (混合精度) with Adam, for Ψ parameters, 16 bytes each:
#
# | | type | bytes |
# |---|---|---|
# | weights (参数) | bf16 | 2Ψ |
# | gradients (梯度) | bf16 | 2Ψ |
# | master weights (主权重) | fp32 | 4Ψ |
# | first moment (一阶动量) | fp32 | 4Ψ |
# | second moment (二阶动量) | fp32 | 4Ψ |
#
# 7 billion parameters: 14 + 14 + 28 + 28 + 28 = 112 GB, for a model whose weights are a file of 14 GB. Eight
# cards of 80 GB have 640 GB *together*, but that helps only when the states are **sharded** (notebook 06);
# with plain data parallelism each card must hold all 112.
#
# Does a real step look like this? `LiveBytes` follows each tensor of torch from its birth to its end.
# First, plain fp32 with torch's AdamW: 4 bytes for each of weights, gradients and the two moments.
#
# **Predict.** How many bytes are alive *after the forward pass*, *after backward*, *after the optimizer*,
# *after zero_grad*? Which of these four is the largest?

# %%
CONFIG = TransformerConfig(layers=4, hidden=64, heads=4, max_len=64)
tokens, targets = next(batches(8, 64, steps=1))


def follow_a_step(model, optimizer):
    """Bytes alive after each phase of two steps; the second one finds the optimizer's states in place."""
    for number in (1, 2):
        states = [value for state in optimizer.state.values() for value in state.values()]
        with LiveBytes([*model.parameters(), *states, tokens, targets]) as live:
            live.mark("start")
            loss = model.loss(tokens, targets)
            live.mark("forward")
            loss.backward()
            del loss
            live.mark("backward")
            optimizer.step()
            live.mark("optimizer")
            optimizer.zero_grad()
            live.mark("zero_grad")
        yield number, live


model = Transformer(CONFIG)
numel = CONFIG.num_parameters()
steps = 4 * len(list(model.parameters()))  # AdamW counts the steps of each tensor in a float32
data = nbytes([tokens, targets])
print(f"{numel} parameters; the batch has {data} bytes, AdamW's step counts {steps}")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for number, live in follow_a_step(model, optimizer):
    held = {"backward": 8 * numel, "optimizer": 16 * numel + steps, "zero_grad": 12 * numel + steps}
    if number == 2:
        held["backward"] += 8 * numel + steps
    for name, (now, peak) in live.marks.items():
        predicted = f"predicted {held[name] + data:>9}" if name in held else ""
        print(f"step {number}, {name:>9}: alive {now:>9}, peak since then {peak:>9}   {predicted}")

# %% [markdown]
# To the byte. The forward pass has no prediction yet: what it leaves behind are *activations*, and they are
# the larger part here. They come to their own section below.
#
# Other conventions than 16 exist: 18 with fp32 gradients in place of bf16 ones, 20 with both. When you read
# a number, ask what is in it.
#
# ## Why keep fp32 weights?
#
# bf16 has 8 significant bits. Below 1 its numbers are 1/256 apart: what is smaller than half of that, 0.002,
# cannot move a weight of 1.
#
# **Predict.** A weight of 1 gets 200 updates of -0.001. Where does it end in fp32, in bf16, and in bf16 with
# an fp32 master?

# %%
def descend(steps, update):
    fp32, bf16 = torch.tensor(1.0), torch.tensor(1.0, dtype=torch.bfloat16)
    master, copy = torch.tensor(1.0), torch.tensor(1.0, dtype=torch.bfloat16)
    path = {"fp32": [], "bf16": [], "bf16 copy of an fp32 master": []}
    for _ in range(steps):
        fp32, bf16, master = fp32 + update, bf16 + update, master + update
        copy = master.to(torch.bfloat16)
        for name, value in zip(path, (fp32, bf16, copy), strict=True):
            path[name].append(value.item())
    return path


path = descend(200, -0.001)
_, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
for (name, values), color, width in zip(path.items(), RANK_COLORS, (4, 2, 1), strict=False):
    ax.plot(values, label=f"{name}: ends at {values[-1]:.3f}", color=color, linewidth=width)
    print(f"{name}: {values[-1]:.4f}")
ax.set_xlabel("updates of -0.001")
ax.set_ylabel("weight")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# The bf16 weight never moved. Is that a corner case? Here a real model on real text, trained by plain SGD.
#
# **Predict.** In one step at learning rate 0.01: what share of the bf16 weights changes at all?

# %%
half = Transformer(CONFIG).to(torch.bfloat16)
half.loss(tokens[:4], targets[:4]).backward()
for lr in (1.0, 0.1, 0.01, 0.001):
    moved = sum(int((weight - lr * weight.grad != weight).sum()) for weight in half.parameters())
    print(f"lr {lr:<6}: {moved / numel:6.1%} of the bf16 weights change in a step")

# %% [markdown]
# The smaller the steps, the more weights stand still, and late in training all steps are small. The largest
# weights are hit first: the scales of the LayerNorms begin at 1, the others around 0.02.
#
# **Predict.** Forty steps of SGD at learning rate 0.02. How many of the LayerNorm scales have moved in fp32,
# in bf16, and in bf16 with fp32 masters? Will the loss show it?

# %%
def train_kind(kind, steps=40, lr=0.02):
    """Losses, and the distance of the LayerNorm scales from 1 after each step (a mean, and how many moved)."""
    torch.manual_seed(0)
    model, losses, distances = Transformer(CONFIG), [], []
    masters = [parameter.detach().clone() for parameter in model.parameters()]
    if kind != "fp32":
        model.to(torch.bfloat16)
    for tokens, targets in batches(4, 32, steps):
        loss = model.loss(tokens, targets)
        loss.backward()
        with torch.no_grad():
            for parameter, master in zip(model.parameters(), masters, strict=True):
                if kind == "bf16 with fp32 masters":
                    master -= lr * parameter.grad.float()
                    parameter.copy_(master)  # rounded to bf16
                else:
                    parameter -= lr * parameter.grad
                parameter.grad = None
        losses.append(loss.item())
        source = zip(model.named_parameters(), masters, strict=True)
        scales = [master if "masters" in kind else own.detach() for (name, own), master in source
                  if "norm" in name and name.endswith("weight")]  # fmt: skip
        distances.append((torch.cat(scales).double() - 1).abs())
    return losses, [distance.mean().item() for distance in distances], int((distances[-1] > 0).sum())


_, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
styles = (("fp32", "-", 4), ("bf16", "-", 2), ("bf16 with fp32 masters", "--", 2))
for (kind, line, width), color in zip(styles, RANK_COLORS, strict=False):
    losses, distances, moved = train_kind(kind)
    ax.plot(distances, line, linewidth=width, label=kind, color=color)
    last = sum(losses[-10:]) / 10
    print(f"{kind:>22}: {moved:>3} of {9 * 64} LayerNorm scales moved; loss {losses[0]:.3f}, at the end {last:.3f}")
ax.set_xlabel("step")
ax.set_ylabel("mean |LayerNorm scale - 1|")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# In bf16 the scales never move: this part of the model does not learn, and after forty steps the loss hardly
# tells. With masters they move as in fp32, although every product was computed in bf16. No contradiction:
# **bf16 for computing, fp32 for adding up.** The same holds for anything that is summed up often, such as
# gradients over micro-batches:

# %%
bf16_sum, fp32_sum = torch.zeros((), dtype=torch.bfloat16), torch.zeros(())
for _ in range(1024):
    bf16_sum += torch.ones((), dtype=torch.bfloat16)
    fp32_sum += torch.ones((), dtype=torch.bfloat16)
print(f"1024 gradients of 1.0: summed in bf16 {bf16_sum.item():g}, in fp32 {fp32_sum.item():g}")

# %% [markdown]
# ## fp16 and the loss scale
#
# fp16 has more digits than bf16 and a far smaller range: below 6e-8 all is 0, above 65504 all is inf. So the
# loss is multiplied by a factor before the backward pass (*loss scaling*, 损失缩放), and gradients are
# divided by it before the update.
#
# **Predict.** Which share of this model's gradients is 0 in fp16 without a scale? With which factor does the
# first one overflow?

# %%
model = Transformer(CONFIG)
(model.loss(tokens, targets) / 1024).backward()  # a loss averaged over many micro-batches is small
gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
gradient = gradient[gradient != 0]
for power in (0, 6, 12, 18, 24, 30):
    scaled = (gradient.double() * 2**power).to(torch.float16)
    lost, over = (scaled == 0).double().mean().item(), int(scaled.isinf().sum())
    print(f"factor 2**{power:<2}: {lost:6.2%} of the gradients are 0, {over} are inf")

# %% [markdown]
# The factor is found by trying: halve it after an overflow (and skip that step), double it after a long time
# without one. With several ranks that each hold **their own** gradients, as with sharded states, an overflow
# can be seen by one rank alone.
#
# **Predict.** Rank 1 overflows in its second step. What are the two ranks' scales and weights after four
# steps, if each decides for itself? And what does it cost to decide together?

# %%
def four_steps(together):
    """Each rank owns one half of a weight; rank 1's gradient overflows in step 2. Returns a row a step."""
    rank, weight, scale, rows = dist.get_rank(), torch.zeros(2), 1024.0, []
    for step in range(4):
        gradient = scale * torch.tensor([1.0, 2.0])
        if step == 1 and rank == 1:
            gradient[0] = float("inf")
        overflow = (~gradient.isfinite()).any().float().reshape(1)
        if together:
            dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
        if overflow.item():
            scale /= 2
        else:
            weight -= 0.1 * gradient / scale
        rows.append((scale, weight.tolist()))
    return rows


for together in (False, True):
    run = launch(four_steps, together, ranks=2)
    print("each decides for itself" if not together else "they decide together")
    for rank, rows in enumerate(run.values):
        scale, weight = rows[-1]
        done = f"scale {scale:g}, weight {[round(w, 1) for w in weight]}"
        print(f"  rank {rank}: {done}; sent {run.trace.bytes_sent(rank)} bytes in 4 steps")

# %% [markdown]
# Alone, rank 0 made four steps and rank 1 three: the two halves are no longer of one model, and no error
# says so. Together they skip the same step, for 4 bytes a step. torch's scaler for sharded gradients does the
# same; the journal shows its flag:

# %%
def torch_four_steps():
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0)
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale((weight * torch.tensor([1.0, 2.0])).sum()).backward()
        if step == 1 and dist.get_rank() == 1:
            weight.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale(), weight.tolist()


theirs, ours = launch(torch_four_steps, ranks=2), launch(four_steps, True, ranks=2)
for rank in range(2):
    (scale, weight), (own_scale, own_weight) = theirs.values[rank], ours.values[rank][-1]
    same = scale == own_scale and torch.allclose(torch.tensor(weight), torch.tensor(own_weight))
    sent = [(event.op, event.nbytes) for event in theirs.trace.events if event.rank == rank]
    print(f"rank {rank}: torch's scale and weight {'agree' if same else 'DIFFER'}; it sent {sent}")

# %% [markdown]
# ## Activations
#
# To compute gradients, the backward pass (反向传播) needs values of the forward pass: *activations* (激活).
# What each operation must keep is known; a Linear its input, GELU its input, softmax its output, a product
# both factors. For a block with H hidden, N heads, an FFN of 4H, B sequences of S tokens:
#
# | kept | elements |
# |---|---|
# | inputs of the two norms, of q/k/v, of the output projection, of the FFN | 5 BSH |
# | q, k, v | 3 BSH |
# | attention weights (softmax's output) | N B S² |
# | GELU's input, and the second FFN matrix's | 2 · 4 BSH |
#
# Together **16 BSH + N B S²**, times the bytes of a number.
#
# **Predict.** B = 4, H = 64, N = 4, fp32: at which S do the attention weights take more than all the rest?

# %%
B, H, N = 4, 64, 4
LENGTHS = [16, 32, 64, 128, 256, 384, 512]


def measured(S, fused):
    block = Block(TransformerConfig(hidden=H, heads=N, fused_attention=fused))
    return saved_bytes(block, torch.randn(B, S, H, requires_grad=True))


def predicted(S, fused):
    linear, quadratic = 16 * B * S * H, N * B * S * S
    return 4 * linear if fused else 4 * (linear + quadratic)


kept = {fused: [measured(S, fused) for S in LENGTHS] for fused in (False, True)}
print(f"{'S':>4}  {'measured':>10}  {'16BSH + NBS2':>12}  off by")
for S, size in zip(LENGTHS, kept[False], strict=True):
    print(f"{S:>4}  {size:>10}  {predicted(S, False):>12}  {size / predicted(S, False) - 1:6.2%}")
print(f"16 BSH = N B S**2 at S = 16 H / N = {16 * H // N}")

# %% [markdown]
# The rest of one or two per cent is what the formula leaves out: the mask (one byte for each of S x S pairs)
# and two numbers a token that each norm keeps. Korthikanti et al. (arXiv 2205.05198) count **sbh (34 +
# 5as/h)** bytes: the same 16 tensors of two bytes, 32, and two dropout masks of one byte; and for attention
# two for softmax's output, one for the mask, two for what dropout leaves.
#
# A *fused attention* (融合注意力; FlashAttention, notebook 13) never stores the S x S weights. It keeps q, k,
# v and its output, and the output is what the next projection keeps anyway: 16 BSH, and no S².

# %%
_, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for fused, name, color in ((False, "attention written out", "#D55E00"), (True, "fused attention", "#0072B2")):
    fine = range(16, 513, 8)
    ax.plot(fine, [predicted(S, fused) / MIB for S in fine], color=color, label=f"{name}, predicted")
    ax.scatter(LENGTHS, [size / MIB for size in kept[fused]], color=color, zorder=3, label=f"{name}, measured")
    print(f"{name}: S = 512 keeps {size_label(kept[fused][-1])}, predicted {size_label(predicted(512, fused))}")
ax.set_xlabel("sequence length S")
ax.set_ylabel(f"MiB kept by one block (B {B}, H {H}, N {N}, fp32)")
ax.legend(frameon=False, fontsize=9)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Checkpointing by hand
#
# *Activation checkpointing* (激活检查点; not to be confused with checkpoint files) keeps only the **borders**
# between blocks, and runs a block once more when its turn comes in the backward pass. Without any machinery:
#
# 1. run all blocks under `no_grad`, and keep each block's input;
# 2. go through the blocks from the last to the first: run the block again, this time with a graph, and send
#    the gradient of its output through it; the gradient of its input is the next one's start.
#
# **Predict.** For 8 blocks: by what factor does the peak fall? What share of time does the second run cost,
# if backward costs twice as much as forward?

# %%
SHAPE = (4, 64, 64)


def make_blocks(count, dropout=0.0):
    torch.manual_seed(0)
    return [Block(TransformerConfig(hidden=SHAPE[-1], heads=4, dropout=dropout)) for _ in range(count)]


def plain_step(blocks, x):
    for block in blocks:
        x = block(x)
    x.square().mean().backward()


def by_hand(blocks, x, segment=1, restore=True):
    """Checkpointing by hand, with borders between segments of `segment` blocks."""
    segments = [blocks[i : i + segment] for i in range(0, len(blocks), segment)]
    borders, states = [x], []
    with torch.no_grad():
        for part in segments:
            states.append(torch.get_rng_state())  # dropout must draw the same mask again
            y = borders[-1]
            for block in part:
                y = block(y)
            borders.append(y)
    result = borders.pop().requires_grad_()
    result.square().mean().backward()
    gradient = result.grad
    del result, y
    for part in reversed(segments):
        y = start = borders.pop().detach().requires_grad_()
        if restore:
            torch.set_rng_state(states.pop())
        for block in part:
            y = block(y)
        y.backward(gradient)
        gradient = start.grad


def torchs_own(blocks, x):
    for block in blocks:
        x = torch_checkpoint(block, x, use_reentrant=True)
    x.square().mean().backward()


def gradients_of(step, blocks, *options):
    for block in blocks:
        block.zero_grad()
    torch.manual_seed(7)
    step(blocks, torch.linspace(-1, 1, 4 * 64 * 64).reshape(SHAPE).requires_grad_(), *options)
    return torch.cat([parameter.grad.reshape(-1) for block in blocks for parameter in block.parameters()])


def follow(step, blocks):
    """Live bytes besides weights and gradients: their peak, and their curve."""
    parameters = [parameter for block in blocks for parameter in block.parameters()]
    x = torch.linspace(-1, 1, 4 * 64 * 64).reshape(SHAPE).requires_grad_()
    step(blocks, x)  # gradients exist from here on
    with LiveBytes([x, x.grad, *parameters, *(parameter.grad for parameter in parameters)]) as live:
        start = live.now()
        step(blocks, x)
    return {"peak": live.peak() - start, "curve": [now - start for now in live.curve]}


def cost(step, blocks, tries=5):
    """FLOPs of a step, and the fastest of some tries in seconds."""
    x, times = torch.linspace(-1, 1, 4 * 64 * 64).reshape(SHAPE).requires_grad_(), []
    with FlopCounterMode(display=False) as counter:
        step(blocks, x)
    for _ in range(tries):
        begin = perf_counter()
        step(blocks, x)
        times.append(perf_counter() - begin)
    return {"flops": counter.get_total_flops(), "time": min(times)}


blocks = make_blocks(8)
wanted = gradients_of(plain_step, blocks)
for name, step in (("by hand", by_hand), ("torch's own", torchs_own)):
    off = (gradients_of(step, blocks) - wanted).abs().max().item()
    print(f"{name}: largest difference of a gradient from the plain step {off:.1e}")
ways = {"plain": plain_step, "by hand": by_hand, "torch's own": torchs_own}
seen = {name: follow(step, blocks) | cost(step, blocks) for name, step in ways.items()}
first = seen["plain"]
for name, now in seen.items():
    flops = f"FLOPs x {now['flops'] / first['flops']:.3f}"
    print(f"{name:>11}: peak {now['peak'] / MIB:5.2f} MiB, {flops}, time x {now['time'] / first['time']:.2f}")

# %%
_, ax = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
styles = (("#D55E00", "-", 1.5), ("#0072B2", "-", 3.5), ("#F0E442", "-", 1.2))
for (name, now), (color, line, width) in zip(seen.items(), styles, strict=True):
    ax.plot([size / MIB for size in now["curve"]], line, label=name, color=color, linewidth=width)
ax.set_xlabel("operators that took new memory, in order")
ax.set_ylabel("MiB besides weights and gradients")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# A mountain, against small steps with a saw on top: each tooth is one block run again. The FLOPs are 4/3:
# forward 1, forward again 1, backward 2, over 3. The time follows them about.
#
# Checkpointing touches activations only: weights, gradients and moments stay what they were. ZeRO (notebook
# 06) does the reverse.
#
# ### How long should a segment be?
#
# With L blocks in segments of k, there are L/k borders, and k blocks are run again at once. A border is
# one tensor (BSH), the inside of a block 16 BSH + N B S². Chen et al. (arXiv 1604.06174): the sum is least
# about where both parts are equal.
#
# **Predict.** A block's inside is about 20 times its border here. Which k from 1, 2, 4, 8 has the lowest
# peak for L = 8?

# %%
def peak_of(segment):
    return follow(lambda blocks, x: by_hand(blocks, x, segment), blocks)["peak"]


border, inside = 4 * 4 * 64 * 64, 4 * (16 * 4 * 64 * 64 + 4 * 4 * 64 * 64)
SEGMENTS = (1, 2, 4, 8)
peaks = {k: peak_of(k) for k in SEGMENTS}
for k, peak in peaks.items():
    guess = 8 // k * border + k * inside
    print(f"segments of {k}: peak {peak / MIB:5.2f} MiB, borders + insides {guess / MIB:5.2f} MiB")
print(f"a block's inside is {inside / border:.0f} borders; lowest peak at k = {min(peaks, key=peaks.get)}")

# %% [markdown]
# With so large an inside the shortest segments win. Segments of √L are best only where one inside is about
# as large as one border; a *block* of a Transformer is not.
#
# ### Dropout
#
# **Predict.** Dropout 0.5, and the second run draws new masks. Is the loss wrong? Are the gradients?

# %%
blocks = make_blocks(3, dropout=0.5)
wanted = gradients_of(plain_step, blocks)
for restore in (False, True):
    got = gradients_of(by_hand, blocks, 1, restore)
    error = ((got - wanted).norm() / wanted.norm()).item()
    print(f"random state {'restored' if restore else 'not restored'}: relative error of the gradients {error:.3f}")
blocks = make_blocks(3)
error = (gradients_of(by_hand, blocks, 1, False) - gradients_of(plain_step, blocks)).abs().max().item()
print(f"without dropout nothing shows: largest difference {error:.1e}")

# %% [markdown]
# The loss came from the first run and is right. The gradients belong to other masks: training goes on,
# worse, and nothing tells you. A test without dropout passes.
#
# ## The whole bill
#
# Put together for a model of 7B parameters (L 32, H 4096, N 32), one sequence of S tokens, bf16 activations.
#
# **Predict.** At S = 4096, what is larger: the 112 GB of states, or the activations without checkpointing?

# %%
def bill(S, L=32, H=4096, N=32, B=1, parameters=7e9):
    linear, quadratic = 2 * 16 * B * S * H, 2 * N * B * S * S
    return {
        "states": 16 * parameters,
        "activations, attention written out": L * (linear + quadratic),
        "activations, fused attention": L * linear,
        "activations, every block checkpointed": L * 2 * B * S * H + linear,
    }


for S in (1024, 4096, 16384):
    print(f"S = {S}")
    for name, size in bill(S).items():
        print(f"  {name:<38} {size / 1e9:8.1f} GB = {size / 2**30:8.1f} GiB")

# %%
_, ax = plt.subplots(figsize=(7.5, 3), layout="constrained")
left = 0
parts = (("weights", 14), ("gradients", 14), ("masters", 28), ("moment 1", 28), ("moment 2", 28))
for (name, size), color in zip(parts, RANK_COLORS, strict=False):
    ax.barh("states", size, left=left, color=color, edgecolor="white")
    ax.text(left + size / 2, 0, f"{name}\n{size}", ha="center", va="center", fontsize=8, color="white")
    left += size
for name, size in list(bill(4096).items())[1:]:
    ax.barh(name.removeprefix("activations, "), size / 1e9, color="#5A5A5A")
    ax.text(size / 1e9 + 2, name.removeprefix("activations, "), f"{size / 1e9:.0f}", va="center", fontsize=8)
ax.invert_yaxis()
ax.set_xlabel("GB (7B parameters, one sequence of 4096 tokens)")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# Add to that what no formula has: work space of kernels, buffers for messages, what the allocator keeps in
# reserve. Estimate with care, then measure.
#
# ## What to take with you
#
# - 16 bytes a parameter: 2 + 2 for computing, 4 + 4 + 4 for adding up. GB or GiB, 16, 18 or 20: say which.
# - Small updates vanish in bf16. Weights, moments and sums of gradients are fp32.
# - What all ranks must do alike, all ranks must decide together. It costs four bytes.
# - A plain block keeps 16 BSH + N B S² numbers; a fused attention drops the S² part.
# - Checkpointing keeps borders, runs each block again, costs a third more, and must restore the random state.
#
# **Next**: in [lab 03](../labs/lab03_memory/lab03_memory.ipynb) you write the ledger, Adam with masters, the
# loss scaler and a checkpoint function that takes any arguments.
# [Notebook 10](10_transformer_flops.ipynb) counts the FLOPs.
