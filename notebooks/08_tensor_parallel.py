# %% [markdown]
# # 08 · Tensor parallel
#
# **You will build** matrix products whose weight lies in pieces on several ranks, forward and backward, by
# hand; a feed-forward that talks once in each direction; heads on ranks; a loss over a split vocabulary.
# Then you count what each of them sends, hold it to torch's own tensor parallelism, train a Transformer
# with it, and see how fast it falls apart on a slow link.
#
# **You need** notebook [02](02_collectives.ipynb) (all-reduce), and what a Transformer block is made of.
#
# **Time**: about 60 minutes to read and try; 30 seconds to run.
#
# Even pieces and no biases: this notebook shows the simple case. Lab 06 asks you for layers that autograd
# can use, biases, fewer key and value heads than ranks, and all the gradients.

# %%
from time import perf_counter, sleep

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils import launch
from utils.memory import saved_bytes
from utils.models import Transformer, TransformerConfig, batches, train
from utils.pictures import draw_split_product, rank_color

# %% [markdown]
# ## One product, two ways to cut it
#
# *Tensor parallelism* (张量并行, TP) splits one matrix product over ranks. The lecture's example: X = [1 2], W
# = [[1 1], [2 3]], and two ranks. The weight can be cut between its **columns** (按列切) or between its
# **rows** (按行切).
#
# **Predict.** XW = [5 7]. What does each rank compute in the two cases, and what must then be sent?

# %%
X, W = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 3.0]])


def by_columns():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = X @ W.chunk(ranks, dim=1)[rank]  # whole X, some columns of W
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    return own.tolist(), torch.cat(parts, dim=1).tolist()


def by_rows():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = X.chunk(ranks, dim=1)[rank] @ W.chunk(ranks, dim=0)[rank]  # some columns of X, the rows of W that meet them
    total = own.clone()
    dist.all_reduce(total)
    return own.tolist(), total.tolist()


for way in (by_columns, by_rows):
    for rank, (own, whole) in enumerate(launch(way, ranks=2).values):
        print(f"{way.__name__}: rank {rank} computes {own}, after the collective it has {whole}")
figure, axes = plt.subplots(2, 1, figsize=(6.2, 3.4), layout="constrained")
draw_split_product(X.tolist(), W.tolist(), "columns", axes[0], title="W by columns")
draw_split_product(X.tolist(), W.tolist(), "rows", axes[1], title="W by rows")
plt.show()

# %% [markdown]
# By columns each rank has **whole outputs**, but only some. By rows each rank has **all outputs, but only a
# part of each sum** (部分和). The colour is the rank; grey is on every rank.
#
# (The lecture gives [3] and [4] for the two ranks of the row split. The partial results are [1 1] and [4
# 6]; their sum is [5 7].)
#
# ## Two products with nothing between them
#
# A feed-forward is a product, a function of each element by itself, and another product: relu(X W1) W2,
# with W1 [H, 4H] and W2 [4H, H]. Cut W1 by columns: rank r gets `[B S, 4H/p]`, whole features. The relu
# needs nothing else. And a row-split W2 takes *exactly these features* as its input. So nothing is sent in
# the middle, and one all-reduce at the end adds the partial sums.
#
# (The lecture merges the parts to [B, S, 4H] before the activation. With W2 cut by rows that is not
# needed.)
#
# The backward pass, by hand, on each rank: with the gradient dY of the output,
#
# $$dW_2 = A^T dY,\quad dA = dY\,W_2^T,\quad dZ = dA \cdot [Z > 0],\quad dW_1 = X^T dZ,\quad dX = dZ\,W_1^T .$$
#
# **Predict.** A, Z, W1 and W2 are pieces here, X and dY are whole. Which of the five lines gives a result
# that is not yet complete?

# %%
HIDDEN, TOKENS = 8, 6


def sample(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cut(w1, w2):
    """This rank's columns of W1 and rows of W2."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return w1.chunk(ranks, dim=1)[rank], w2.chunk(ranks, dim=0)[rank]


def forward(x, w1, w2, add_up):
    z = x @ w1
    a = z.relu()
    return add_up(a @ w2), (x, z, a)


def backward(dy, saved, w1, w2, add_up):
    x, z, a = saved
    dz = (dy @ w2.t()) * (z > 0)
    return {"dW1": x.t() @ dz, "dW2": a.t() @ dy, "dX": add_up(dz @ w1.t())}


def all_reduced(partial):
    dist.all_reduce(partial)
    return partial


def as_it_is(partial):
    return partial


def problem():
    """X, W1, W2 and the gradient of the output."""
    shapes = (TOKENS, HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN), (TOKENS, HIDDEN)
    return [sample(seed, *shape) for seed, shape in enumerate(shapes)]


def errors(backward_sum):
    """Largest error of each result against one process, relative to its largest value."""
    x, w1, w2, dy = problem()
    dense_y, saved = forward(x, w1, w2, as_it_is)
    dense = backward(dy, saved, w1, w2, as_it_is)
    dense["dW1"], dense["dW2"] = cut(dense["dW1"], dense["dW2"])
    w1, w2 = cut(w1, w2)
    y, saved = forward(x, w1, w2, all_reduced)
    got = {"Y": y, **backward(dy, saved, w1, w2, backward_sum)}
    dense["Y"] = dense_y
    return {name: ((got[name] - dense[name]).abs().max() / dense[name].abs().max()).item() for name in got}


for name, backward_sum in (("with the all-reduce of dX", all_reduced), ("without it", as_it_is)):
    off = launch(errors, backward_sum, ranks=4).values[1]
    print(f"{name:>26}: " + "  ".join(f"{key} off by {value:.2f}" for key, value in off.items()))

# %% [markdown]
# dX: every rank sends X through its own features, so it has one term of dX, and the terms must be added up.
# That is the whole rule of tensor parallelism, read in both directions:
#
# | | forward | backward |
# |---|---|---|
# | X goes into split work | (every rank has it) | **all-reduce** of dX |
# | partial sums come out | **all-reduce** of Y | (every rank has dY) |
#
# Look at the second line of the output. Forget the all-reduce of dX, and the output is right, and so are
# the gradients of *this* layer's weights. All layers **before** it get wrong gradients. A test that
# compares outputs, or the weights of one layer, sees nothing. Look at dX.
#
# ## What is sent: yours, the lecture's, torch's
#
# **Predict.** Four ranks; X has 6 x 8 numbers of 4 bytes. Each rank sends 2 (p-1)/p of a buffer for an
# all-reduce and p-1 times its piece for an all-gather. What does a rank send forward and backward, for the
# pair above? What if the activation is gathered to [B S, 4H] in the middle?

# %%
def pair_step():
    x, w1, w2, dy = problem()
    w1, w2 = cut(w1, w2)
    y, saved = forward(x, w1, w2, all_reduced)
    return y, backward(dy, saved, w1, w2, all_reduced)["dX"]


def gathering_step():
    x, w1, w2, dy = problem()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    w1, w2 = cut(w1, w2)
    a = (x @ w1).relu()
    parts = [torch.empty_like(a) for _ in range(ranks)]
    dist.all_gather(parts, a)
    own = torch.cat(parts, dim=1).chunk(ranks, dim=1)[rank]  # every rank has all of it, and needs only its part
    y = all_reduced(own @ w2)
    return y, backward(dy, (x, x @ w1, a), w1, w2, all_reduced)["dX"]


def torch_step():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    x, w1, w2, dy = problem()
    net = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN, bias=False), nn.ReLU(), nn.Linear(4 * HIDDEN, HIDDEN, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(w1.t())
        net[2].weight.copy_(w2.t())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    dist.barrier()  # what comes before is the setting up
    x.requires_grad_()
    y = net(x) + 0
    y.backward(dy)
    return y.detach(), x.grad


def after_barrier(trace, rank):
    """The events of a rank behind its last barrier (all of them, where there is none)."""
    events = trace.of(rank)
    last = max((i for i, event in enumerate(events) if event.op == "barrier"), default=-1)
    return events[last + 1 :]


same = launch(pair_step, ranks=4)
for step in (pair_step, gathering_step, torch_step):
    run = launch(step, ranks=4)
    agrees = all(torch.allclose(a, b, atol=1e-4) for a, b in zip(run.values[0], same.values[0], strict=True))
    events = after_barrier(run.trace, 0)
    ops = ", ".join(f"{event.op} of {'x'.join(map(str, event.shape))}" for event in events)
    print(f"{step.__name__:>14}: {sum(event.sent for event in events):4} bytes ({ops}); same Y and dX: {agrees}")
size = TOKENS * HIDDEN * 4  # bytes of X, and of a rank's piece of the activation
two = 2 * (2 * 3 * size // 4)
print(f"predicted: two all-reduces {two} bytes; with the gather {two + 3 * size}")

# %% [markdown]
# The gather doubles the traffic for nothing: each rank throws away all but its own part. torch's
# `ColwiseParallel` and `RowwiseParallel` do what you wrote by hand: two all-reduces, of `[B S, H]`.
#
# ## Attention by heads
#
# Heads do not talk to each other either. The query, key and value projections are cut by columns, so that a
# rank has whole heads; the output projection is cut by rows; one all-reduce at the end. Checkpoints often
# keep the three projections in one matrix [Q | K | V], and with *grouped-query attention* (分组查询注意力, GQA)
# there are fewer K and V heads than query heads.
#
# **Predict.** 8 query heads, 2 KV heads, the columns of the fused weight in the order q0..q7 k0 k1 v0 v1.
# Cut it in two in the middle: what does rank 0 get? And who needs which KV head on 4 ranks?

# %%
HEADS, KV_HEADS = 8, 2
fused = [f"q{i}" for i in range(HEADS)] + [f"{kind}{i}" for kind in "kv" for i in range(KV_HEADS)]
half = len(fused) // 2
print("cut in the middle: rank 0 has", " ".join(fused[:half]), "| rank 1 has", " ".join(fused[half:]))
for ranks in (2, 4):
    print(f"what {ranks} ranks need:")
    for rank in range(ranks):
        queries = range(rank * HEADS // ranks, (rank + 1) * HEADS // ranks)
        needed = sorted({query * KV_HEADS // HEADS for query in queries})
        print(f"  rank {rank}: queries {[f'q{i}' for i in queries]} read KV heads {needed}")

# %% [markdown]
# Cut in the middle, rank 0 has queries and no keys at all. On 4 ranks there are two KV heads for four
# ranks: ranks 0 and 1 need the same one, and each holds a copy. Half a head would be of no use. Each copy
# then sees only its own queries' gradient: the copies must add theirs up, or they drift apart. (Lab 06,
# part 3.)
#
# ## A loss over a split vocabulary
#
# The output layer `[H, V]` is cut by columns: rank r gets the *logits* (原始分数) of its part of the
# vocabulary. Gathering them would undo what the cut saved: logits are often the largest tensor of all. But
# the cross-entropy needs only three numbers for each token: the largest logit, the sum of exponentials, and
# the target's logit. Each can be all-reduced by itself.
#
# **Predict.** 64 tokens, V = 8192, p = 4: how many times more does a gather send?

# %%
V = 8192


def loss_by_gather(logits, targets):
    parts = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, logits)
    return F.cross_entropy(torch.cat(parts, dim=1), targets)


def loss_by_numbers(logits, targets):
    rank, width = dist.get_rank(), logits.shape[1]
    top = logits.amax(1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    both = torch.zeros(2, len(targets))
    both[0] = (logits - top[:, None]).exp().sum(1)
    mine = targets // width == rank
    both[1, mine] = logits[mine, targets[mine] % width]
    dist.all_reduce(both)
    return (both[0].log() + top - both[1]).mean()


def loss_on_rank(loss):
    logits, targets = 5 * sample(5, 64, V), torch.arange(64) * 127 % V
    own = logits.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()
    return loss(own, targets).item()


print(f"one process: {F.cross_entropy(5 * sample(5, 64, V), torch.arange(64) * 127 % V):.4f}")
sent = {}
for loss in (loss_by_gather, loss_by_numbers):
    run = launch(loss_on_rank, loss, ranks=4)
    sent[loss] = run.trace.bytes_sent(0)
    print(f"{loss.__name__:>15}: {run.values[3]:.4f} on every rank, {sent[loss]} bytes sent by rank 0")
ratio = (3 * 64 * V / 4) / (3 * 2 * 3 / 4 * 64)
print(f"{sent[loss_by_gather] / sent[loss_by_numbers]:.0f} times as many; predicted {ratio:.0f}")

# %% [markdown]
# The ratio is V / 6, for any p: three all-reduces of 2 (p-1)/p numbers a token, against (p-1) V/p. At V =
# 128 000 nobody gathers. Only the owner knows a target's logit, and most targets belong to somebody else:
# each rank must look which are its own. The lab adds ignored targets, uneven pieces, label smoothing, and
# the gradient.
#
# ## What the cut saves, and what not
#
# **Predict.** On 4 ranks: by what factor do the weights of a block shrink on each rank? By what factor the
# activations that are kept for the backward pass?
#
# The next cell counts what autograd keeps (in floats for each token and hidden unit) for the block's parts,
# with this rank's width, for p = 1, 2, 4, 8.

# %%
def kept_by_block(p, tokens=32, hidden=64):
    x = sample(6, 1, tokens, hidden).requires_grad_()
    norm = nn.LayerNorm(hidden)
    split = nn.Sequential(nn.Linear(hidden, 4 * hidden // p), nn.GELU(), nn.Linear(4 * hidden // p, hidden, bias=False))
    unit = 4 * tokens * hidden
    around = saved_bytes(norm, x) + saved_bytes(lambda y: F.dropout(y, 0.1), x)
    weights = sum(w.numel() for w in split.parameters()) / (8 * hidden * hidden + 4 * hidden)
    inside = saved_bytes(split, x) - unit  # its input is the norm's output: kept, whole, on every rank
    return weights, inside / unit, (around + unit) / unit


WORLDS = [1, 2, 4, 8]
kept = {p: kept_by_block(p) for p in WORLDS}
for p, (weights, inside, around) in kept.items():
    print(f"p = {p}: weights {weights:.3f}; activations inside {inside:.2f}, around {around:.2f}")
figure, ax = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
ax.bar([str(p) for p in WORLDS], [kept[p][1] for p in WORLDS], color=rank_color(0), label="inside the split layers")
bottom = [kept[p][1] for p in WORLDS]
ax.bar([str(p) for p in WORLDS], [kept[p][2] for p in WORLDS], bottom=bottom, color=rank_color(1), label="around them")
ax.plot([str(p) for p in WORLDS], [sum(kept[1][1:]) / p for p in WORLDS], "k--", label="everything / p")
ax.set(xlabel="ranks", ylabel="kept, in units of B S H floats", title="activations of one feed-forward on each rank")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# The weights and what lies *between* the two products shrink with p. The norms, dropouts and the residual
# stream do not: every rank does the same work on the same numbers. *Sequence parallelism* (序列并行) cuts those
# along the tokens: a norm treats each token by itself. Before the split layers the tokens are all-gathered,
# and the partial sums behind them are **reduce-scattered** in place of all-reduced.
#
# **Predict.** An all-reduce is a reduce-scatter and an all-gather. So does sequence parallelism send more,
# or less, than the all-reduces above?

# %%
def norm_and_mlp(sequence):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    plan = {"1": ColwiseParallel(), "3": RowwiseParallel()}
    x, dy = sample(7, 2, 8, 16), sample(8, 2, 8, 16)
    if sequence:
        plan = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1))}
        plan["3"] = RowwiseParallel(output_layouts=Shard(1))
        x, dy = (whole.chunk(ranks, dim=1)[rank].contiguous() for whole in (x, dy))
    net = parallelize_module(net, init_device_mesh("cpu", (ranks,)), plan)
    dist.barrier()
    (net(x) + 0).backward(dy)
    grad = net[0].weight.grad
    return grad.full_tensor() if hasattr(grad, "full_tensor") else grad


gradients = []
for sequence in (False, True):
    run = launch(norm_and_mlp, sequence, ranks=2)
    gradients.append(run.values[0])
    ops = [event.op for event in after_barrier(run.trace, 0)]
    passes = [event for event in after_barrier(run.trace, 0) if event.numel >= 2 * 8 * 16 // 2]
    print(f"sequence parallel {sequence!s:>5}: {sum(e.sent for e in passes)} bytes of activations ({', '.join(ops)})")
print("gradient of the norm's weight is the same:", torch.allclose(*gradients, atol=1e-4))

# %% [markdown]
# The same bytes, in four collectives in place of two; the extra small all-reduce is the gradient of the
# norm, which each rank knows only from its own tokens. (Here it was summed when the result was asked for.
# Forget it, and the norms of the ranks drift apart: a bug that several frameworks have had.)
#
# **Dropout** (随机失活) needs the same care. Where an activation is *replicated*, all ranks must draw the same
# mask. Where it is *split*, they must not.
#
# **Predict.** Two ranks with the same seed draw a mask for their halves of a split activation of 8
# features. What is wrong with it?

# %%
def mask_on_rank(seed_by_rank):
    generator = torch.Generator().manual_seed(100 + (dist.get_rank() if seed_by_rank else 0))
    return (torch.rand(4, generator=generator) < 0.5).int().tolist()


for seed_by_rank in (False, True):
    masks = launch(mask_on_rank, seed_by_rank, ranks=2).values
    print(f"a seed for each rank: {seed_by_rank!s:>5}  mask of the 8 features: {masks[0]} + {masks[1]}")

# %% [markdown]
# With one seed, feature i and feature i + 4 always fall together: half the randomness is gone. With two
# groups of ranks (tensor and data parallel) one seed rule cannot serve both kinds of activation.
#
# ## Train with it
#
# The course's small Transformer, on real text, in one process and on 2 ranks. torch cuts the model for us,
# by the names of its layers; the bodies of attention and feed-forward stay as they are, because they ask
# for "as many heads as there are".
#
# **Predict.** L = 2 blocks, each with attention and feed-forward, each with one all-reduce in each
# direction. How many all-reduces of `[B, S, H]` are there in a step? Are the losses equal?

# %%
CONFIG = TransformerConfig(hidden=32, layers=2, heads=4, max_len=32)
BATCH, SEQ, STEPS = 4, 32, 14


def trained(split=lambda block: None):
    """Losses of a training whose blocks `split` has cut."""
    torch.manual_seed(0)
    model = Transformer(CONFIG)
    for block in model.blocks:
        split(block)
    if dist.is_initialized():
        dist.barrier()
    sizes = [w.to_local().numel() if hasattr(w, "to_local") else w.numel() for w in model.blocks.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return train(model, batches(BATCH, SEQ, STEPS), optimizer), sum(sizes)


def trained_on_ranks(once):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {f"attention.{name}_proj": ColwiseParallel() for name in "qkv"}
    plan |= {"attention.o_proj": RowwiseParallel(), "feed_forward.up": ColwiseParallel()}
    plan["feed_forward.down"] = RowwiseParallel()
    if once:  # x is handed over to the split work before q, k and v part ways
        plan["attention"] = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return trained(lambda block: parallelize_module(block, mesh, plan))


dense, whole = trained()
print("one process:", " ".join(f"{loss:.2f}" for loss in dense))
numel = BATCH * SEQ * CONFIG.hidden
predicted = 8 * numel // 2 * CONFIG.layers * 4
print(f"predicted: {4 * CONFIG.layers} all-reduces a step, 8 (p-1)/p B S H L x 4 = {predicted} bytes")
for once in (False, True):
    run = launch(trained_on_ranks, once, ranks=2)
    losses, own = run.values[0]
    print("two ranks:  ", " ".join(f"{loss:.2f}" for loss in losses))
    large = [e for e in after_barrier(run.trace, 0) if e.op == "all_reduce" and e.numel == numel]
    print(f"  {len(large) / STEPS:g} all-reduces a step, {sum(e.sent for e in large) // STEPS} bytes")
print(f"largest difference of a loss: {max(abs(a - b) for a, b in zip(dense, losses, strict=True)):.0e}")
print(f"weights of the blocks on a rank: {own} of {whole}")

# %% [markdown]
# The losses are the same. But the first run sends half as much again: 12 all-reduces, not 8. In this model
# q, k and v are three column layers, and torch all-reduces the gradient of **each one's** input. Gradients
# of the same x can be added up on the rank first, and all-reduced once: that is the second run, and a fused
# QKV weight has the same effect. Nothing in the values tells you; only the journal does.
#
# The norms and the biases behind a row split are whole on each rank, so it is a little more than half.
#
# ## A slow link
#
# Data parallelism sends its gradients once a step, while the backward pass still runs. Tensor parallelism
# sends **in the middle of every layer**, and nothing can be computed until the sum is there. So how much
# does the *latency* (延迟) of a link cost? Let every all-reduce first take the latency α of a link, by
# sleeping.
#
# **Predict.** A stack of 6 feed-forwards: one all-reduce forward and one backward in each. Against that,
# data parallelism with one all-reduce of all gradients. How many α does a step take in the two cases?

# %%
LAYERS, WIDTH, ROWS = 6, 64, 32
LATENCIES = [0.0, 0.002, 0.005, 0.01]


def slow_all_reduce(alpha):
    def add_up(partial):
        sleep(alpha)
        dist.all_reduce(partial)
        return partial

    return add_up


def tensor_parallel_step(weights, x, add_up):
    own, saved = [cut(*pair) for pair in weights], []
    for w1, w2 in own:
        x, kept = forward(x, w1, w2, add_up)
        saved.append(kept)
    for (w1, w2), kept in zip(reversed(own), reversed(saved), strict=True):
        x = backward(x, kept, w1, w2, add_up)["dX"]


def data_parallel_step(weights, x, add_up):
    x, saved, gradients = x.chunk(dist.get_world_size())[dist.get_rank()], [], []
    for w1, w2 in weights:
        x, kept = forward(x, w1, w2, as_it_is)
        saved.append(kept)
    for (w1, w2), kept in zip(reversed(weights), reversed(saved), strict=True):
        result = backward(x, kept, w1, w2, as_it_is)
        x = result["dX"]
        gradients += [result["dW1"].flatten(), result["dW2"].flatten()]
    add_up(torch.cat(gradients))


def fastest_steps(step):
    weights = [(0.1 * sample(i, WIDTH, 4 * WIDTH), 0.1 * sample(-i, 4 * WIDTH, WIDTH)) for i in range(1, LAYERS + 1)]
    fastest = []
    for alpha in LATENCIES:
        seconds = []
        for _ in range(5):
            dist.barrier()
            start = perf_counter()
            step(weights, sample(9, ROWS, WIDTH), slow_all_reduce(alpha))
            seconds.append(perf_counter() - start)
        fastest.append(min(seconds))
    return fastest


figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for number, (name, step, messages) in enumerate(
    (("tensor parallel", tensor_parallel_step, 2 * LAYERS), ("data parallel", data_parallel_step, 1))
):
    fastest = launch(fastest_steps, step, ranks=2, trace=False).values[0]
    predicted = [fastest[0] + messages * alpha for alpha in LATENCIES]
    print(f"{name:>15}: " + ", ".join(
        f"{alpha * 1000:.0f} ms: {took * 1000:.1f} ms (predicted {guess * 1000:.1f})"
        for alpha, took, guess in zip(LATENCIES, fastest, predicted, strict=True)
    ))
    color, milliseconds = rank_color(number), [alpha * 1000 for alpha in LATENCIES]
    ax.plot(milliseconds, [took * 1000 for took in fastest], "o", color=color, label=f"{name}, measured")
    ax.plot(milliseconds, [guess * 1000 for guess in predicted], "--", color=color, label=f"{name}, + {messages} α")
ax.set(xlabel="latency α of the link, ms", ylabel="one step, ms", title="the same stack on 2 ranks")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# Twelve α against one. A block of a real Transformer has four all-reduces in a step, an 80-layer model 320,
# all of them waited for. So a tensor-parallel group stays inside one machine, on its fastest links
# (NVLink), and data parallelism goes across the network.
#
# ## What to take with you
#
# - Columns: whole outputs, nothing to send before. Rows: partial sums, all-reduce after. Columns then rows:
#   one all-reduce in each direction, nothing in between.
# - A replicated input of split work needs its gradient all-reduced. Outputs cannot tell you whether you
#   did.
# - Heads are the unit of attention; KV heads that are too few are copied, and their gradients added up.
# - The cross-entropy needs a maximum and two sums for each token, never the logits.
# - Weights and inner activations shrink with p; the rest only with sequence parallelism, at no extra bytes.
# - 8 (p-1)/p B S H numbers a block and step, each of them waited for: only on fast links.
#
# **Next**: [lab 06](../labs/lab06_tensor_parallel/lab06_tensor_parallel.ipynb).
