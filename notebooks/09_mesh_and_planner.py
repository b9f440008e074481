# %% [markdown]
# # 09 · Many dimensions
#
# **You will build** a training step in which data, pipeline and tensor parallelism work at once: groups of
# a mesh, 2 x 2 x 2 ranks that train exactly as one process does, optimizer state spread over the replicas,
# a model that is saved at one layout and goes on at another. You read off what travels along which axis,
# hide communication behind computation and measure it, and put times on the shapes that 64 GPUs can have.
#
# **You need** notebooks [02](02_collectives.ipynb) and [03](03_cost_model.ipynb), and the idea of data,
# pipeline and tensor parallelism (04, 06, 07, 08).
#
# **Time**: about 60 minutes to read and try; 35 seconds to run.

# %%
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils import launch
from utils.cost import AlphaBeta
from utils.mesh import (
    AXES,
    Mesh,
    ShardedStage,
    bytes_per_axis,
    draw_mesh,
    run_gpipe,
    seconds_per_axis,
    shard_of,
)
from utils.models import Transformer, TransformerConfig, batches, train
from utils.pictures import RANK_COLORS, size_label

# %% [markdown]
# ## A mesh of ranks
#
# A large training job uses several kinds of parallelism at once (多维并行; three of them: 3D 并行). The number
# of GPUs is then a product. The lecture's example: 64 = 4 x 2 x 8, with TP = 4, PP = 2, DP = 8.
#
# Think of the ranks as an array with one axis for each kind, a **mesh** (设备网格). We order the axes (dp, pp,
# tp) and let the last one count fastest, so that the ranks of a tensor-parallel group have neighbouring
# numbers: launchers number the GPUs of a machine one after the other, and these are the ones with fast
# links between them. The **group along an axis** (通信组) is the set of ranks that differ only in that
# coordinate.
#
# **Predict.** Take 8 = 2 x 2 x 2. With which rank does rank 5 share its tp group, its pp group, its dp group?

# %%
ranks = torch.arange(8).reshape(2, 2, 2)  # [dp, pp, tp]
d, p, t = (int(i) for i in (ranks == 5).nonzero()[0])
print(f"rank 5 is at dp {d}, pp {p}, tp {t}")
print("its tp group:", ranks[d, p, :].tolist())
print("its pp group:", ranks[d, :, t].tolist())
print("its dp group:", ranks[:, p, t].tolist())
figure, axes = plt.subplots(1, 3, figsize=(10.5, 2.3), layout="constrained")
for axis, ax in zip(AXES, axes, strict=True):
    draw_mesh((2, 2, 2), axis, ax)
plt.show()

# %% [markdown]
# Equal colour, one group. Each rank is in three groups, one for each axis, and each axis has 8/2 = 4 groups.
#
# **Predict.** 64 GPUs as TP = 4, PP = 2, DP = 8: how many groups of each kind? And GPT-3's 3840 = 8 x 8 x 60
# (TP = 8, PP = 8, DP = 60)?

# %%
for tp, pp, dp in ((4, 2, 8), (8, 8, 60)):
    world = torch.arange(dp * pp * tp).reshape(dp, pp, tp)
    print(f"TP {tp} x PP {pp} x DP {dp} = {world.numel()} GPUs, {world.numel() // 8} nodes of 8")
    for axis, name in enumerate(AXES):
        count = world.numel() // world.shape[axis]
        first = world.movedim(axis, -1)[0, 0][:4].tolist()
        print(f"  {count:4} {name} groups of {world.shape[axis]:2}, the first begins {first}")

# %% [markdown]
# Read it as a checklist: the product is the number of GPUs; each axis has its own message; the tp groups are
# blocks of neighbours, and 4 or 8 of them fit into one node.
#
# ## Process groups
#
# On a mesh every collective needs its group. `dist.new_group(ranks)` makes one, and it is a collective of the
# **whole world**: every rank calls it for every group, also for those that it is no member of, in the same
# order.
#
# Here for two axes, 2 x 2 ranks; lab 07 asks for any number of axes. torch has it ready as
# `init_device_mesh`.

# %%
def rows_and_columns():
    groups = {}
    for name, lines in (("row", [[0, 1], [2, 3]]), ("column", [[0, 2], [1, 3]])):
        for line in lines:
            group = dist.new_group(line)  # every rank, every line
            if dist.get_rank() in line:
                groups[name] = group
    sums = {}
    for name, group in groups.items():
        x = torch.tensor(10 ** dist.get_rank())
        dist.all_reduce(x, group=group)
        sums[name] = x.item()
    return sums


def with_device_mesh():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("column", "row"))
    sums = {}
    for name in ("row", "column"):
        x = torch.tensor(10 ** dist.get_rank())
        dist.all_reduce(x, group=mesh.get_group(name))
        sums[name] = x.item()
    return sums


ours, theirs = launch(rows_and_columns, ranks=4), launch(with_device_mesh, ranks=4)
for rank in range(4):
    print(f"rank {rank}: {ours.values[rank]}   init_device_mesh agrees: {ours.values[rank] == theirs.values[rank]}")
print("bytes sent, ours and theirs:", ours.trace.bytes_sent(0), theirs.trace.bytes_sent(0))

# %% [markdown]
# A sum of 1010 says: ranks 1 and 3.
#
# **Predict.** It looks like a waste that rank 3 calls `new_group([0, 1])`. What happens if each rank makes
# only the groups that it is in?

# %%
def members_only():
    rank = dist.get_rank()
    for line in ([0, 1], [2, 3], [0, 2], [1, 3]):
        if rank in line:
            dist.new_group(line)
    return "done"


try:
    launch(members_only, ranks=4, timeout=10, show=False)
except Exception as report:
    print(str(report).split("\n\n")[0][:700])

# %% [markdown]
# gloo would often have let it pass; nccl hangs now and then, which is worse than always. The journal of our
# ranks sees the difference and says so.
#
# ## A model on the mesh
#
# `utils.mesh` has what notebooks 07 and 08 built, put together. `ShardedStage(model, mesh)` is this rank's
# part: some of the blocks (its pipeline *stage*, by pp), and of every matrix in them a piece (by tp). For
# each parameter it says how it lies along tp:

# %%
CONFIG = TransformerConfig(hidden=32, layers=2, heads=4, ffn=64, max_len=16, tied=False)


def whole_model(dtype=torch.float64):
    torch.manual_seed(0)
    return Transformer(CONFIG).to(dtype)


def what_lies_where():
    stage = ShardedStage(whole_model(), Mesh(dp=2, pp=2, tp=2))
    held = {name: (its.kind, its.dim, list(its.shape), list(stage.get_parameter(name).shape))
            for name, its in stage.placements.items()}  # fmt: skip
    return {"held": held, "numel": sum(p.numel() for p in stage.parameters())}


placed = launch(what_lies_where, ranks=8).values
for name, (kind, dim, whole, here) in placed[0]["held"].items():
    if not name.startswith("blocks") or (name.startswith("blocks.0.") and not name.endswith("proj.bias")):
        print(f"{name:34} {kind:10} {f'dim {dim}' if kind == 'sharded' else '':6} {whole!s:10} here {here}")
stages = [placed[rank]["numel"] for rank in (0, 2)]
print(f"ranks 0 and 2 (stages 0 and 1) hold {stages} of {CONFIG.num_parameters()} parameters")

# %% [markdown]
# ## What is done with a gradient
#
# After the backward pass each rank has gradients of its own part, from its replica's part of the batch.
# What has to happen follows from where a parameter lies:
#
# | along | parameters are | so the gradients are |
# |---|---|---|
# | dp | copies, each replica saw other rows | **averaged**: all-reduce, divided by dp (not by the world size) |
# | tp, sharded | other elements on each rank | complete already |
# | tp, replicated | copies, and every rank had the same input and the same output gradient | equal already |
# | pp | other parameters on each stage | complete already |
#
# So here only dp talks. Two cases are left to lab 07, and both bite in practice: a gradient of which each
# tp rank has only a **share** (fewer key heads than ranks, or sequence parallelism), and a **tied**
# embedding, which lives on two stages.
#
# ## ZeRO-1 along dp
#
# The replicas of a rank are its dp group: they hold the same parameters and, after the all-reduce, the same
# gradients. ZeRO-1 lets each of them keep the optimizer state of a part only. The simplest cut is by whole
# tensors: number the parameters, replica d owns those with number k ≡ d (mod dp), updates them with Adam, and
# sends the new values to the others. (Lab 07 cuts by elements, which balances better.)
#
# One thing to watch: inside a group, ranks have other numbers than in the world. The root of a broadcast is
# given as a rank of the *world* in `src`, or as a rank of the group in `group_src`.

# %%
class OwnersAdam:
    """Adam; each parameter's moments are kept by one rank of the group."""

    def __init__(self, parameters, group, lr=0.01, betas=(0.9, 0.999), eps=1e-8):
        self.parameters, self.group, self.steps = list(parameters), group, 0
        self.lr, self.betas, self.eps = lr, betas, eps
        self.place, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.state = {k: (torch.zeros_like(x), torch.zeros_like(x)) for k, x in self.owned()}

    def owned(self):
        return [(k, x) for k, x in enumerate(self.parameters) if k % self.count == self.place]

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for k, x in self.owned():
            mean, square = self.state[k]
            mean.lerp_(x.grad, 1 - self.betas[0])
            square.mul_(self.betas[1]).addcmul_(x.grad, x.grad, value=1 - self.betas[1])
            root = (square / (1 - self.betas[1] ** self.steps)).sqrt() + self.eps
            x.addcdiv_(mean, root, value=-self.lr / (1 - self.betas[0] ** self.steps))
        for owner in range(self.count):
            theirs = self.parameters[owner :: self.count]
            flat = torch.cat([x.reshape(-1) for x in theirs])
            dist.broadcast(flat, group=self.group, group_src=owner)
            for x, new in zip(theirs, flat.split([x.numel() for x in theirs]), strict=True):
                x.copy_(new.view_as(x))


# %% [markdown]
# ## The step
#
# Everything together. Every rank is given the whole batch and takes the rows of its replica; tp ranks and
# stages of one replica take the same rows. The loss of a micro-batch is a mean, so it is divided by the
# number of micro-batches; the gradients by dp, once.

# %%
def mesh_step(stage, mesh, optimizer, tokens, targets, micro_batches=2):
    dp = mesh.size("dp")
    tokens, targets = tokens.chunk(dp)[mesh.coordinate("dp")], targets.chunk(dp)[mesh.coordinate("dp")]
    wanted = targets.chunk(micro_batches)

    def loss_of(k, logits):
        return F.cross_entropy(logits.flatten(0, 1), wanted[k].flatten()) / micro_batches

    stage.zero_grad()
    losses = run_gpipe(stage, mesh, tokens.chunk(micro_batches), loss_of)
    gradients = torch.cat([x.grad.reshape(-1) for x in stage.parameters()])
    dist.all_reduce(gradients, group=mesh.group("dp"))
    pieces = (gradients / dp).split([x.numel() for x in stage.parameters()])
    for x, piece in zip(stage.parameters(), pieces, strict=True):
        x.grad.copy_(piece.view_as(x))
    optimizer.step()
    loss = torch.tensor(sum(losses) / dp, dtype=torch.float64)
    for axis in ("pp", "dp"):  # all but the last stage bring 0
        dist.all_reduce(loss, group=mesh.group(axis))
    return loss.item()


def train_on_mesh(layout, data, dtype=torch.float64):
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(dtype), mesh)
    optimizer = OwnersAdam(stage.parameters(), mesh.group("dp"))
    losses = [mesh_step(stage, mesh, optimizer, tokens, targets) for tokens, targets in data]
    return {"losses": losses, "kept": sum(m.numel() for pair in optimizer.state.values() for m in pair)}


# %% [markdown]
# **Predict.** Four ranks, then eight, on the real text (CPython's own library), 20 steps, against torch's Adam in one
# process on the whole batch. How far apart are the losses in float64? In float32?

# %%
DATA = list(batches(8, 16, 20))

for layout, dtype in (((2, 1, 2), torch.float32), ((2, 2, 2), torch.float64)):
    model = whole_model(dtype)
    alone = train(model, DATA, torch.optim.Adam(model.parameters(), lr=0.01))
    ranks = layout[0] * layout[1] * layout[2]
    run = launch(train_on_mesh, layout, DATA, dtype, ranks=ranks, timeout=60)
    together = run.values[0]["losses"]
    off = max(abs(a / b - 1) for a, b in zip(together, alone, strict=True))
    print(f"{layout} {dtype}: loss {together[0]:.6f} -> {together[-1]:.6f}, alone {alone[-1]:.6f}, off by {off:.0e}")
print("all ranks report the same:", all(value["losses"] == together for value in run.values))
print("values of Adam's state on ranks 0, 4 (replicas of stage 0):", [run.values[r]["kept"] for r in (0, 4)])

# %% [markdown]
# Seven digits in float32, sixteen in float64: what is left is rounding. This is the test that every parallel training
# should pass: *the same numbers as one process*. A loss curve that "looks alright" does not tell you that a
# factor is missing somewhere; Adam hides a constant factor in the gradients almost perfectly.
#
# Look at the last line: the replicas share the state, but not equally. One of them got the large embedding.
# Cutting by elements mends this.
#
# torch's own `ZeroRedundancyOptimizer` takes a `process_group` as well. The same update on two replicas,
# values and bytes:

# %%
def update_with(kind):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)).double()
    if kind == "ours":
        optimizer = OwnersAdam(model.parameters(), dist.group.WORLD)
    else:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for step in range(2):
        for x in model.parameters():
            x.grad = (torch.arange(float(x.numel())).reshape(x.shape) - step).double().sin()
        optimizer.step()
    return torch.cat([x.detach().reshape(-1) for x in model.parameters()])


ours, torchs = (launch(update_with, kind, ranks=2, timeout=60) for kind in ("ours", "torch"))
print("largest difference:", f"{(ours.values[1] - torchs.values[1]).abs().max():.0e}")
print("bytes sent by ranks 0 and 1: ours", [ours.trace.bytes_sent(r) for r in (0, 1)],
      " ZeroRedundancyOptimizer", [torchs.trace.bytes_sent(r) for r in (0, 1)])  # fmt: skip

# %% [markdown]
# The same values. torch deals the parameters out by size, so that both owners have half of the bytes; ours went by
# number, and one got both matrices, the other both biases.
#
# ## What travels along which axis
#
# In bytes that one rank sends in a step, with P the parameters that it holds, R the rows of its replica, S
# tokens in a row, width H, L blocks in its stage, and a ring all-reduce that sends 2(p-1)/p of its buffer:
#
# - **dp**: the gradients, 2(dp-1)/dp · P, once a step (and the new values of what it owns);
# - **pp**: the activations of its rows, R·S·H, to the next stage, or their gradients to the one before;
# - **tp**: two all-reduces forward and two backward in every block: 4 · L · 2(tp-1)/tp · R·S·H.
#
# **Predict.** For 2 x 2 x 2 and this model, in float64: put numbers in, and say which axis sends most. Then
# the same for 2 x 1 x 4 and 8 x 1 x 1: what happens to dp when the model is cut into smaller parts?

# %%
LAYOUTS = [(8, 1, 1), (2, 2, 2), (2, 1, 4)]


def predicted_bytes(layout, numel, rows=8, length=16, itemsize=8):
    dp, pp, tp = layout
    activation = rows // dp * length * CONFIG.hidden * itemsize
    return {
        "dp": 2 * (dp - 1) / dp * numel * itemsize,
        "pp": activation if pp > 1 else 0,
        "tp": 4 * CONFIG.layers // pp * 2 * (tp - 1) / tp * activation,
    }


class PlainSGD:
    """w -= 0.1 grad, and nothing sent."""

    def __init__(self, stage):
        self.parameters = list(stage.parameters())

    def step(self):
        for x in self.parameters:
            x.data -= 0.1 * x.grad


def two_steps(layout, data):
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(), mesh)
    for tokens, targets in data:
        dist.barrier()
        mesh_step(stage, mesh, PlainSGD(stage), tokens, targets, micro_batches=1)
    return sum(x.numel() for x in stage.parameters())


measured, seconds, guessed = {}, {}, {}
for layout in LAYOUTS:
    run = launch(two_steps, layout, DATA[:2], ranks=8, timeout=60)
    begun = max(event.start for event in run.trace if event.op == "barrier")
    second = run.trace.since(begun)  # the first step opens connections
    measured[layout], seconds[layout] = bytes_per_axis(second, 0, layout), seconds_per_axis(second, 0, layout)
    guessed[layout] = predicted_bytes(layout, run.values[0])
    for axis in AXES:
        moved = f"predicted {guessed[layout][axis]:7.0f} bytes, measured {measured[layout][axis]:7.0f}"
        print(f"{layout}  {axis}: {moved}, {1e3 * seconds[layout][axis]:6.1f} ms in it")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for k, axis in enumerate(AXES):
    places = [n + 0.26 * (k - 1) for n in range(len(LAYOUTS))]
    left.bar(places, [measured[x][axis] / 1024 for x in LAYOUTS], 0.24, color=RANK_COLORS[k], label=axis)
    left.plot(places, [guessed[x][axis] / 1024 for x in LAYOUTS], "k_", markersize=16)
    right.bar(places, [seconds[x][axis] * 1e3 for x in LAYOUTS], 0.24, color=RANK_COLORS[k], label=axis)
for ax, title in ((left, "KiB sent by rank 0 in a step\n(line: predicted)"), (right, "ms in communication, rank 0")):
    ax.set_xticks(range(len(LAYOUTS)), [" x ".join(map(str, layout)) for layout in LAYOUTS])
    ax.set(title=title, xlabel="dp x pp x tp")
    ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# The bytes are as predicted, to within the few of the reported loss. The times are not: eight ranks share
# this machine's cores, and most of what you see is waiting for the others. What stays true anywhere is the
# pattern: **dp** has few large messages, once a step, with no one waiting for them but the update; **tp**
# has many, and in the middle of every block everybody waits. In a large model, with thousands of tokens in
# flight, tp also sends the most bytes by far. That is why tp goes *inside* a node (节点内), on the fastest
# links, and dp and pp across.
#
# **Predict.** GPT-3: H = 12288, 96 layers in 8 stages, TP 8, 2048 tokens a row, one row a micro-batch,
# bf16. How long do the tp all-reduces of one micro-batch take in one stage over links of 300 GB/s, and how
# long over 25 GB/s (1 GB = 10^9 bytes)?

# %%
activation = 1 * 2048 * 12288 * 2
moved = 4 * (96 // 8) * 2 * 7 / 8 * activation
compute = 6 * 175e9 / (8 * 8) * 2048 / 150e12
print(f"moved along tp: {moved / 1e9:.2f} GB for one micro-batch in one stage")
for where, bandwidth in (("inside a node, 300 GB/s", 300e9), ("between nodes,  25 GB/s", 25e9)):
    print(f"{where}: {moved / bandwidth * 1e3:6.1f} ms beside {compute * 1e3:.1f} ms of computation at 150 TFLOP/s")

# %% [markdown]
# Inside a node tp adds a sixteenth to the computation; between nodes it would add three quarters. Putting tp on the
# slow links is the most common mistake in a layout.
#
# ## Overlap
#
# Communication need not wait until computation has ended (通信计算重叠). The backward pass goes from the last
# layer to the first. As soon as the gradients of some layers are there, a *bucket* (梯度桶) of them can be
# sent, while the backward pass goes on with earlier layers. If all buckets are through when the backward
# pass ends, communication cost nothing.
#
# Let us see it with two replicas. On this machine sending *is* computing (the cores copy the bytes), so we
# give each message the time of a wire as in notebook 03: a thread sleeps, needs no core, and then does the
# all-reduce. α = 4 ms a message, and 8 ms for one layer's gradients.

# %%
LAYERS, WIDTH = 12, 256
LAYER_BYTES = WIDTH * WIDTH * 4
WIRE = AlphaBeta(alpha=4e-3, beta=8e-3 / LAYER_BYTES)


class Slow(torch.autograd.Function):
    """The identity; its backward pass takes 10 ms, as if a large layer were computed."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        sleep(10e-3)
        return grad


def backward_and_send(per_bucket, overlap):
    """Seconds from the start of the backward pass until all buckets are reduced; one timeline of (what, from, to)."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    wire, pending, spans, full = ThreadPoolExecutor(1), [], [], []

    def send(bucket):
        begun = perf_counter()
        sleep(WIRE.time(LAYER_BYTES * len(bucket)))
        flat = torch.cat([weight.grad.reshape(-1) for weight in bucket])
        dist.all_reduce(flat)
        for weight, piece in zip(bucket, flat.split(WIDTH * WIDTH), strict=True):
            weight.grad.copy_(piece.view_as(weight) / dist.get_world_size())
        spans.append(("send", begun - start, perf_counter() - start))

    def ready(weight):
        spans.append(("layer", perf_counter() - start, 0))
        full.append(weight)
        if len(full) == per_bucket:
            bucket = list(full)
            full.clear()
            if overlap:
                pending.append(wire.submit(send, bucket))
            else:
                pending.append(bucket)

    for layer in layers:
        layer.weight.register_post_accumulate_grad_hook(ready)
    x = torch.randn(8, WIDTH)
    for layer in layers:
        x = Slow.apply(layer(x))
    loss = x.square().mean()
    dist.barrier()
    start = perf_counter()
    loss.backward()
    spans.append(("backward", 0, perf_counter() - start))
    for item in pending:
        item.result() if overlap else send(item)
    total = perf_counter() - start
    wire.shutdown()
    return {"seconds": total, "spans": spans, "grad": layers[0].weight.grad.sum().item()}


# %% [markdown]
# **Predict.** 12 layers of 10 ms make 120 ms of backward. Buckets of 2 layers take 4 + 16 = 20 ms each. How
# long without overlap, 120 + 6 x 20? And with it, when a bucket is full every 20 ms?

# %%
def both_ways():
    backward_and_send(2, True)  # warm up
    return {overlap: backward_and_send(2, overlap) for overlap in (False, True)}


pair = launch(both_ways, ranks=2, trace=False).values[0]
off, on = pair[False], pair[True]
print(f"without overlap: predicted 240 ms, measured {off['seconds'] * 1e3:.0f} ms")
print(f"with overlap:    predicted 120 + 20 = 140 ms, measured {on['seconds'] * 1e3:.0f} ms")
print("same gradients:", abs(off["grad"] - on["grad"]) < 1e-9)
figure, axes = plt.subplots(2, 1, figsize=(8, 2.6), sharex=True, layout="constrained")
for ax, one, title in zip(axes, (off, on), ("without overlap", "with overlap"), strict=True):
    for what, begun, ended in one["spans"]:
        if what == "layer":
            ax.plot([begun * 1e3] * 2, [0.6, 1.4], color="white", lw=1, zorder=3)
        else:
            row = 1 if what == "backward" else 0
            ax.barh(row, (ended - begun) * 1e3, 0.8, begun * 1e3, color=RANK_COLORS[row], edgecolor="white")
    ax.set_yticks([0, 1], ["all-reduce", "backward"])
    ax.set_title(title, fontsize=10)
axes[1].set_xlabel("ms since the backward pass began")
plt.show()

# %% [markdown]
# With overlap only the last bucket is seen: it is full only when the backward pass is over. So why not make
# buckets tiny, to have a tiny last one? Because each message pays α.
#
# **Predict.** Buckets of 1, 2, 3, 4, 6 and 12 layers: where is the minimum? The last bucket of b layers
# comes 4 + 8 b ms after the backward pass, and all 12/b messages together need 12/b · 4 + 96 ms, behind
# each other, from the first full bucket on.

# %%
SIZES = [1, 2, 3, 4, 6, 12]


def sweep():
    backward_and_send(2, True)
    return [min(backward_and_send(size, True)["seconds"] for _ in range(2)) for size in SIZES]


def predicted_seconds(size, layer=10e-3):
    """Play it through: a bucket starts when it is full and the wire is free."""
    free = 0.0
    for bucket in range(LAYERS // size):
        full = (bucket + 1) * size * layer
        free = max(free, full) + WIRE.time(size * LAYER_BYTES)
    return free


swept = launch(sweep, ranks=2, trace=False).values[0]
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(SIZES, [1e3 * predicted_seconds(size) for size in SIZES], "--", color=RANK_COLORS[0], label="predicted")
ax.plot(SIZES, [1e3 * s for s in swept], "o", color=RANK_COLORS[1], label="measured")
ax.axhline(120, color="grey", lw=0.8)
ax.text(12, 121, "backward alone", ha="right", va="bottom", fontsize=8)
ax.set(xlabel="layers in a bucket", ylabel="ms until all gradients are there", title="bucket size")
ax.legend()
plt.show()
for size, took in zip(SIZES, swept, strict=True):
    print(f"{size:2} layers a bucket: predicted {1e3 * predicted_seconds(size):4.0f} ms, measured {1e3 * took:4.0f} ms")

# %% [markdown]
# Too small, and the latencies pile up; too large, and there is nothing left to hide behind. DDP's default
# of 25 MiB (`bucket_cap_mb`) is such a compromise, to be measured on your own network.
#
# ## Saved here, resumed there
#
# What is saved should not know the layout: **whole tensors by name**. Each is put together along tp, and
# written by one rank only. To load, every rank takes from the whole tensors the pieces that it needs *now*.
# (Here for parameters under plain SGD, with one file a stage; lab 07 adds the optimizer's state.)

# %%
def sgd_steps(stage, mesh, data):
    return [mesh_step(stage, mesh, PlainSGD(stage), tokens, targets) for tokens, targets in data]


def whole_tensor(tensor, placement, mesh):
    if placement.kind != "sharded":
        return tensor
    pieces = [torch.empty_like(tensor) for _ in mesh.ranks("tp")]
    dist.all_gather(pieces, tensor.contiguous(), group=mesh.group("tp"))
    return torch.cat(pieces, placement.dim)


def train_and_save(layout, data, folder):
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(), mesh)
    losses = sgd_steps(stage, mesh, data)
    whole = {name: whole_tensor(x.detach(), stage.placements[name], mesh) for name, x in stage.named_parameters()}
    if mesh.coordinate("dp") == mesh.coordinate("tp") == 0:
        torch.save(whole, f"{folder}/stage{mesh.coordinate('pp')}.pt")
    return losses


def load_and_train(layout, data, folder):
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(), mesh)
    saved = {}
    for path in sorted(Path(folder).glob("stage*.pt")):
        saved |= torch.load(path, weights_only=True)
    for name, x in stage.named_parameters():
        x.data.copy_(shard_of(saved[name], stage.placements[name].dim, mesh.coordinate("tp"), mesh.size("tp")))
    return sgd_steps(stage, mesh, data)


# %% [markdown]
# **Predict.** Five steps on 2 x 2 x 1, then five on 1 x 1 x 4. Which files are written, with how many
# tensors? Does the loss jump at the change?

# %%
with tempfile.TemporaryDirectory() as folder:
    first = launch(train_and_save, (2, 2, 1), DATA[:5], folder, ranks=4, timeout=60).values[0]
    for path in sorted(Path(folder).iterdir()):
        print(path.name, len(torch.load(path, weights_only=True)), "tensors,", size_label(path.stat().st_size))
    second = launch(load_and_train, (1, 1, 4), DATA[5:10], folder, ranks=4, timeout=60).values[0]
model = whole_model()
alone = train(model, DATA[:10], torch.optim.SGD(model.parameters(), lr=0.1))
for step in (0, 3, 4, 5, 6, 9):
    got = (first + second)[step]
    print(f"step {step + 1:2}: {got:.9f}, one process {alone[step]:.9f}")
print("largest difference:", f"{max(abs(a - b) for a, b in zip(first + second, alone, strict=True)):.0e}")

# %% [markdown]
# No jump: where the loss goes up it does so in one process too (each step is another batch).
#
# ## The planner
#
# Which layout for a given model and machine? Automatic parallelism (自动并行; Alpa is an example) searches: it
# knows the model's operators and the machine's links, and tries how to cut operators, where stages begin,
# how many micro-batches. A search needs three numbers for each plan:
#
# - its **memory** on one GPU, a ledger (显存账本): does it fit?
# - its **traffic** along each axis;
# - its **time**, from the FLOPs, the traffic and the links.
#
# `utils.planner` has a formula for each, every one from a paper that its module names: 16 bytes of state a
# parameter, shared along dp as the stage of ZeRO says; activations by stage and schedule; the FLOPs of every
# product at what a GPU really reaches; each collective over an α-β link; the pipeline's bubble.
#
# **Predict.** A 7B model on 64 GPUs of 40 GB, 8 in a node, 256 sequences of 4096 tokens a step, layers
# recomputed in the backward pass. Six plans: which cannot be, which do not fit? Which is quickest, and what
# does each of the others pay for?

# %%
from utils.planner import Plan, Workload, refuse
from utils.planner.candidate import price
from utils.planner.files import load_cluster, load_model
from utils.planner.pictures import draw_ledgers, draw_steps

SEVEN = load_model("7b")
BOX, EFFICIENCY = load_cluster("8x40gb", gpus=64)  # 8 nodes, 300 GB/s inside, 25 GB/s a GPU between them
ROOM = 0.9 * BOX.memory_bytes  # libraries take some
PLANS = [(64, 1, 1, 0), (64, 1, 1, 3), (16, 1, 4, 1), (8, 2, 4, 1), (8, 8, 1, 1), (4, 1, 16, 1)]
priced = {}
for dp, pp, tp, zero in PLANS:
    name, plan = f"DP {dp:2} PP {pp} TP {tp:2} ZeRO-{zero}", Plan(dp=dp, pp=pp, tp=tp, zero=zero)
    work = Workload(256, seq=4096, checkpoint="full", dropout=False)
    refused = refuse(SEVEN, work, BOX, plan)
    if refused:
        print(f"{name}: cannot be: {refused}")
        continue
    one = priced[name] = price(SEVEN, work, BOX, plan, EFFICIENCY)
    fits = "fits" if one.memory.total <= ROOM else "does not fit"
    spent = ", ".join(f"{part} {s:.2f}" for part, s in one.time.parts() if s > 0.02)
    print(f"{name}: {one.memory.total / 1e9:5.1f} GB {fits:12} {one.time.seconds:5.2f} s = {spent}")
figure, axes = plt.subplots(1, 2, figsize=(10.5, 2.9), layout="constrained")
draw_ledgers(priced, ROOM, axes[0])
draw_steps(priced, axes[1])
plt.show()

# %% [markdown]
# Plain data parallelism does not fit: all of the state is on every GPU. ZeRO-3 fits, and pays with parameters that
# are fetched for every micro-batch. TP 4 pays inside the node, PP 8 with its bubble, and TP 16 is refused:
# its groups would lie across nodes.
#
# ## Change one thing
#
# `what_if` prices a plan, plays one step of it event by event (every stage, message and gradient; what leaves
# a node shares the node's links), and says **what limits it**: what a machine with twice of one thing would
# save. Start from a plan, then change one thing at a time.
#
# **Predict.** With full recomputation in place of none: what happens to the activations, to the step, to the
# bubble's share?

# %%
from utils.planner.what_if import what_if

before = what_if(draw=False)  # 7B, 64 GPUs, DP 8 PP 4 TP 2, 16 micro-batches
after = what_if(before, checkpoint="full")

# %% [markdown]
# Activations are a small part of the rest, and every backward pass first runs its forward pass again. Now
# change it yourself: `pp=1`, `tp=8`, `chunks=2`, `micro_batch=4`, `zero=3`, `model="llama3-8b"`, `gpus=256` ...
#
# **Predict.** One of the 64 GPUs computes 1.5 times slower than the others. Do you lose 1/64 of a half?

# %%
slow = what_if(before, slow_gpus={5: 1.5}, draw=False)
lost = slow.simulated.seconds / before.simulated.seconds - 1
print(f"\none slow GPU of 64 costs all of them {lost:.0%} of their time")

# %% [markdown]
# Everybody waits: its tp group in every layer, its pipeline for that stage, all replicas for its gradients. No
# closed formula above has it in; the simulation has. GPUs that behave alike are simulated once, so that
# large machines take no longer.
#
# **Predict.** A trillion parameters on 98,304 GPUs, and a node dies in the middle of a step, 100 steps after the
# last checkpoint. What is lost?

# %%
from utils.planner.efficiency import A100
from utils.planner.faults import best_interval, lose_node
from utils.planner.published import gpt, selene
from utils.planner.simulate import simulate

TRILLION = gpt("1T", layers=128, hidden=25600, heads=160)
large, plan = Workload(192 * 64, seq=2048, precision="fp16", checkpoint="full"), Plan(dp=192, tp=8, pp=64)
try:
    start = perf_counter()
    played = simulate(TRILLION, large, selene(plan.gpus), plan, A100)
    print(f"{plan.gpus} GPUs, {played.tasks} tasks, simulated in {perf_counter() - start:.1f} s: "
          f"{played.seconds:.1f} s a step, {played.timeline().bubble:.0%} of a pipeline's time idle")  # fmt: skip
    loss = lose_node(TRILLION, large, selene(plan.gpus), plan, A100, node=7, steps_since_checkpoint=100, restart=600)
    print(f"a node is lost: the first others stop after {loss.first_idle:.1f} s, all after {loss.all_idle:.1f} s;")
    print(f"{loss.redone / 60:.0f} minutes are computed again: {loss.gpu_hours:.0f} GPU-hours for 8 GPUs that died")
except ValueError as error:  # schedules are made in lab 05, and come when a later lab is out
    print(error)
often = best_interval(checkpoint_seconds=60, gpu_mtbf_hours=50_000, gpus=plan.gpus) / 60
print(f"a failure every {50_000 / plan.gpus * 60:.0f} minutes: save every {often:.0f} minutes, if saving takes one")

# %% [markdown]
# ## Is it right?
#
# A planner's numbers are predictions; they are worth what they are held to. Five parameters of the A100 (what it
# reaches of its peaks) were chosen by published runs. Leave one run out, choose them by the others, predict it:

# %%
from utils.planner.efficiency import constant_errors, errors, leave_one_out

table = leave_one_out()
for run, guess in table:
    plan = run.plan
    print(f"{run.model.name:>7} on {plan.gpus:4} GPUs, DP {plan.dp:2} PP {plan.pp:2} TP {plan.tp}: measured "
          f"{run.measured / 1e12:.0f} TFLOP/s a GPU, predicted {guess / 1e12:.0f}")  # fmt: skip
print("error: median {:.1%}, worst {:.1%}".format(*errors(table)))
print("a constant for all: median {:.1%}, worst {:.1%}".format(*constant_errors()))

# %% [markdown]
# Ten runs over two decades of GPUs, and no parameter for any one of them.
#
# A few plans are not a search. A search looks at *all* legal ones: the product is the number of GPUs, tp divides
# the heads and stays in a node, pp divides the layers, dp and the micro-batch divide the batch; it drops
# those that do not fit and takes the quickest of the rest. You write one in lab 07; the planner's own comes with
# that lab. On the command line: `python -m utils.planner 7b 8x40gb --gpus 64 --batch 256 --seq 4096`.

# %%
try:
    from utils.planner.explain import Setting, explain
    from utils.planner.pictures import draw_front
    from utils.planner.search import front, search
except ImportError:
    print("the planner's search is not here: you write one in lab 07")
else:
    work = Workload(256, seq=4096, dropout=False)
    found = search(SEVEN, work, BOX, EFFICIENCY)
    print(f"{found.considered} legal shapes, {found.priced} priced; the best takes {found.best.time.seconds:.2f} s:")
    print(found.best.text())
    for sentence in explain(Setting(SEVEN, BOX, EFFICIENCY), found.best):
        print("  " + sentence)
    draw_front(front(SEVEN, work, BOX, EFFICIENCY, up_to=2.0), ROOM, found.best)
    plt.show()

# %% [markdown]
# Each point is a plan than which none is both smaller and quicker (the Pareto front, 帕累托前沿); grey does not fit.
# The formulas leave much out: kernels that are slower on small pieces, uneven experts, software. Check a plan
# with a measurement, like all predictions here.
#
# ## What to take with you
#
# - GPUs = dp x pp x tp. Write the product down, then for each axis: who is in the group, what travels, when.
# - tp: inside every layer, in the node. pp: activations between neighbours. dp: gradients, once a step,
#   hidden behind the backward pass if the buckets are right.
# - Gradients are averaged over dp and only over dp; what else happens to one follows from where it lies.
# - Hold every layout to one process, in float64, for some steps. It finds what a loss curve hides.
# - Save whole tensors by name.
#
# **Next**: [lab 07](../labs/lab07_mesh/lab07_mesh.ipynb).
