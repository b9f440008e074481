# %% [markdown]
# # 06 · ZeRO and FSDP: the state in pieces
#
# **You will build** the three stages of ZeRO on a small Transformer: optimizer states, then gradients, then
# parameters in pieces, one piece a rank. You count what each rank holds and what it sends, and hold both to
# the formulas, to torch's own ZeRO and FSDP, and to the table in the paper.
#
# **You need** notebook [02](02_collectives.ipynb) (reduce-scatter, all-gather), the idea of data
# parallelism, and the 16 bytes a parameter of training memory.
#
# **Time**: about 60 minutes to read and try; 30 seconds to run.
#
# Everything here divides by 4 and no parameter is special: this notebook shows the simple case. Lab 04 asks
# you for the general one.

# %%
import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn

from utils import launch
from utils.memory import LiveBytes
from utils.models import Transformer, TransformerConfig, stdlib_bytes
from utils.pictures import draw_before_after, marks
from utils.pictures.sharding import draw_ledger, draw_live_bytes

RANKS = 4

# %% [markdown]
# ## What plain data parallelism wastes
#
# In data parallelism (数据并行, DP) every rank holds the whole training state: with mixed precision and Adam 2
# bytes a parameter for the weights (bf16), 2 for the gradients, and 12 for the **optimizer states** (优化器状态:
# fp32 weights and two moments), 16 in all. All p copies are the same: a *redundancy* (冗余). **ZeRO**, the
# *Zero Redundancy Optimizer* (Rajbhandari et al. 2020, arXiv 1910.02054), cuts the state into p **shards**
# (分片), in three stages:
#
# | stage | cut into shards | bytes a parameter on each rank |
# |---|---|---|
# | 0 (plain DP) | nothing | 2 + 2 + 12 |
# | 1 | optimizer states | 2 + 2 + 12/p |
# | 2 | and gradients | 2 + 2/p + 12/p |
# | 3 (FSDP) | and weights | 16/p |
#
# **Predict.** A model has 7.5 billion parameters, a card has 80 GB (1 GB = 10^9 bytes), there are 64 cards.
# Which stage is the first that fits? How much of the 120 GB does stage 1 save: a half, three quarters, all
# but 1/64?

# %%
def ledger(parameters, ranks, stage):
    """GB that one rank holds: (weights, gradients, optimizer states)."""
    parts = [2, 2, 12]
    for sharded in range(stage):  # stage 1 shards the last part, stage 2 the last two, stage 3 all
        parts[2 - sharded] /= ranks
    return tuple(parameters * part / 1e9 for part in parts)


NAMES = ("plain DP", "stage 1", "stage 2", "stage 3")
draw_ledger({name: ledger(7.5e9, 64, stage) for stage, name in enumerate(NAMES)}, title="7.5 B parameters on 64 ranks")
plt.show()

# %% [markdown]
# Stage 1 already: 31.4 GB, a quarter of the 120. What was largest, the states, is shared out among 64; what
# is left is mostly the 4 bytes of weights and gradients. Those are what stages 2 and 3 are for.
#
# Does the formula give the paper's own numbers?
#
# **Predict.** The paper's Table 1 says 608 GB for 128 B parameters on 16 ranks in stage 1. And the formula?

# %%
PAPER = {  # arXiv 1910.02054, Table 1: GB a rank in stages 1, 2, 3
    (7.5e9, 4): (52.5, 41.3, 30), (7.5e9, 64): (31.4, 16.6, 1.88), (7.5e9, 1024): (30.1, 15.1, 0.12),
    (128e9, 16): (608, 368, 128), (128e9, 256): (518, 263, 8), (1e12, 64): (4187, 2218, 250),
}  # fmt: skip
for (parameters, ranks), published in PAPER.items():
    ours = [sum(ledger(parameters, ranks, stage)) for stage in (1, 2, 3)]
    cells = "   ".join(f"{mine:8.2f} / {theirs:<6}" for mine, theirs in zip(ours, published, strict=True))
    print(f"{parameters / 1e9:6.1f} B on {ranks:4} ranks, formula / paper: {cells}")

# %% [markdown]
# 608 exactly. But look at 4187 and 2218: the formula says 4187.50 and 2218.75. The paper *rounds* its 7.5 B
# column and *cuts off* the fractions of the others. When you hold your numbers to a published table, ask
# how it was rounded before you doubt the formula.
#
# On 4 ranks stage 3 holds 16/4 = 4 bytes a parameter: the number in the lecture.

# %% [markdown]
# ## The pieces, in numbers that remember where they came from
#
# ZeRO needs two collectives. **Reduce-scatter** (规约分发): every rank brings a whole gradient and leaves with
# its own piece of the sum. **All-gather** (全收集): every rank brings a piece and leaves with the whole.
#
# **Predict.** Rank 0 writes its gradient as 1, 2, 3, 4, rank 1 as 10, 20, 30, 40, and so on. What does rank
# 2 hold after the reduce-scatter?

# %%
def shard_of_sum():
    gradient = marks(dist.get_rank(), RANKS)
    piece = torch.empty(1, dtype=gradient.dtype)
    dist.reduce_scatter_single(piece, gradient)
    whole = torch.empty(RANKS, dtype=gradient.dtype)
    dist.all_gather_single(whole, piece)
    return gradient, piece, whole


run = launch(shard_of_sum, ranks=RANKS)
gradients, pieces, wholes = zip(*run.values, strict=True)
draw_before_after(gradients, pieces, "gradients, reduce-scatter")
draw_before_after(pieces, wholes, "pieces, all-gather")
plt.show()
S = 8 * RANKS
print(f"rank 0 sent {run.trace.bytes_sent(0) / S:.2f} S in both together; an all-reduce sends 2 (p-1)/p S = 1.50 S")

# %% [markdown]
# 3333: the third element of all four. Between the two collectives each rank holds *one piece* of the sum,
# and that is all an owner needs to update its own piece of the parameters. So **stage 1 sends no more than
# plain DP**: it stops half-way through the all-reduce, updates, and does the other half with new parameters
# in place of gradients.

# %% [markdown]
# ## The baseline: plain DP, in one flat vector
#
# A small Transformer, trained on real text: the source of Python's own library. All parameters become views
# of *one* flat vector, and all gradients views of another, so that one collective moves everything.
# Everything is float32 here: 4 bytes of weights, 4 of gradients, 8 of Adam's moments. Again 16.

# %%
CONFIG = TransformerConfig(hidden=64, layers=2, heads=2, max_len=16, vocab_size=64)
TEXT = stdlib_bytes(4096).to(torch.uint8)
ROWS, STEPS = 8, 3


def build():
    """The same model on every rank."""
    torch.manual_seed(0)
    return Transformer(CONFIG)


def my_batch(step, rows=ROWS):
    """This rank's share of the rows of a batch: tokens and targets."""
    starts = 61 * torch.arange(rows)[:, None] + 500 * step
    window = TEXT[starts + torch.arange(CONFIG.max_len + 1)].long() % CONFIG.vocab_size
    mine = window.chunk(dist.get_world_size())[dist.get_rank()] if dist.is_initialized() else window
    return mine[:, :-1], mine[:, 1:]


def flat_views(model):
    """All parameters moved into one flat vector, all gradients into another; the model uses views of them."""
    params = list(model.parameters())
    flat = torch.cat([param.detach().flatten() for param in params])
    grad = torch.zeros_like(flat)
    place = 0
    for param in params:
        stretch = slice(place, place + param.numel())
        param.data, param.grad = flat[stretch].view_as(param), grad[stretch].view_as(param)
        place += param.numel()
    return flat, grad


class Adam:
    """Adam (Kingma and Ba 2015, arXiv 1412.6980) on one tensor, whose two moments it keeps."""

    def __init__(self, tensor, lr=3e-3):
        self.tensor, self.lr, self.count = tensor, lr, 0
        self.mean, self.square = torch.zeros_like(tensor), torch.zeros_like(tensor)

    @torch.no_grad()
    def step(self, grad):
        self.count += 1
        self.mean.lerp_(grad, 0.1)
        self.square.mul_(0.999).addcmul_(grad, grad, value=0.001)
        update = self.square.div(1 - 0.999**self.count).sqrt_().add_(1e-5)
        self.tensor.addcdiv_(self.mean, update, value=-self.lr / (1 - 0.9**self.count))


class PlainDP:
    def __init__(self, model):
        self.flat, self.grad = flat_views(model)
        self.adam = Adam(self.flat)

    def step(self):
        dist.all_reduce(self.grad)
        self.grad /= dist.get_world_size()
        self.adam.step(self.grad)
        self.grad.zero_()

    def parameters(self):
        return self.flat


print(f"{CONFIG.num_parameters()} parameters, {CONFIG.num_parameters() / RANKS} on each rank")

# %% [markdown]
# `train` runs any of our ways of training, counts living bytes at the moment when most of the state is
# there, between backward and update, and brings back the losses and the parameters.
#
# **Predict.** How many bytes a parameter will plain DP hold at that moment? How many (p-1)/p of the
# parameters' bytes does a rank send in a step?

# %%
NUMEL = CONFIG.num_parameters()


def train(make):
    with LiveBytes() as live:
        model = build()
        way = make(model)
        dist.barrier()  # marks in the journal: between the two barriers lie the steps, and nothing else
        losses = []
        for step in range(STEPS):
            if step == STEPS - 1:
                live.curve.clear()
                live.reset_peak()
            loss = model.loss(*my_batch(step))
            losses.append(loss.item())
            loss.backward()
            del loss
            live.mark("state")
            way.step()
        dist.barrier()
        return {
            "losses": losses, "state": live.marks["state"][0] / NUMEL, "peak": live.peak() / NUMEL,
            "curve": [nbytes / NUMEL for nbytes in live.curve], "parameters": way.parameters(),
        }  # fmt: skip


results = {}


def steps_of(trace, rank, pair=0):
    """What this rank did between its first and its second barrier; with pair = 1, its third and its fourth."""
    barriers = [place for place, op in enumerate(trace.ops(rank)) if op == "barrier"]
    return trace.of(rank)[barriers[2 * pair] + 1 : barriers[2 * pair + 1]]


def sent_in_a_step(trace, pair=0):
    """What a rank sends in a step, in (p-1)/p of the parameters, on the average over the ranks."""
    total = sum(event.sent for rank in range(RANKS) for event in steps_of(trace, rank, pair))
    return total / STEPS / (4 * NUMEL * (RANKS - 1))


def try_out(name, make, says):
    run = launch(train, make, ranks=RANKS)
    results[name] = run.values[0]
    print(f"{name}: {results[name]['state']:.2f} bytes a parameter ({says}), at the peak {results[name]['peak']:.2f}")
    print(f"{name}: a step sends {sent_in_a_step(run.trace):.2f} times (p-1)/p of the parameters")
    if name != "plain DP":
        off = (run.values[0]["parameters"] - results["plain DP"]["parameters"]).abs().max()
        print(f"{name}: parameters differ from plain DP's by at most {off:.0e} after {STEPS} steps")
    return run


_ = try_out("plain DP", PlainDP, "predicted 16")

# %% [markdown]
# 16, as predicted. And 2: an all-reduce.
#
# Is it right at all? One process that sees all 8 rows must go through the same losses, on the average over
# ranks.

# %%
def one_process():
    model, losses = build(), []
    flat, grad = flat_views(model)
    adam = Adam(flat)
    for step in range(STEPS):
        loss = model.loss(*my_batch(step))
        loss.backward()
        adam.step(grad)
        grad.zero_()
        losses.append(loss.item())
    return losses, flat


losses, alone = launch(one_process, ranks=None).value
print("one process, losses:", [f"{loss:.4f}" for loss in losses])
off = (alone - results["plain DP"]["parameters"]).abs().max()
print(f"plain DP on {RANKS} ranks ends with the same parameters, to {off:.0e}")

# %% [markdown]
# ## Stage 1: shard the optimizer states
#
# Rank r owns the r-th quarter of the flat vector. It keeps Adam's moments for that quarter only, and so
# updates only that quarter.
#
# **Predict.** Bytes a parameter between backward and update, on 4 ranks? And the traffic?

# %%
def quarter(vector):
    return vector.chunk(dist.get_world_size())[dist.get_rank()]


class StageOne:
    def __init__(self, model):
        self.flat, self.grad = flat_views(model)
        self.adam = Adam(quarter(self.flat))  # a view: no copy of the parameters

    def step(self):
        mine = torch.empty_like(quarter(self.grad))
        dist.reduce_scatter_single(mine, self.grad)
        self.adam.step(mine / dist.get_world_size())
        self.grad.zero_()
        dist.all_gather_single(self.flat, quarter(self.flat).clone())

    def parameters(self):
        return self.flat


_ = try_out("stage 1", StageOne, "predicted 4 + 4 + 8/4 = 10")

# %% [markdown]
# The same parameters, the same traffic, and 6 bytes a parameter less on every rank. There is no reason ever
# to leave these bytes lying about: stage 1 costs nothing.

# %% [markdown]
# ## Stage 2: shard the gradients
#
# An owner needs the summed gradients of its quarter only. The others could go as soon as they have been
# sent. But to whom, and when? Backward makes gradients one parameter after the other, from the last layer
# to the first. A *hook* (钩子) tells when one is ready: here every parameter is cut into quarters for itself,
# reduce-scattered in its hook, and its gradient freed.
#
# **Predict.** Bytes a parameter between backward and update? The traffic in bytes? And how many messages
# does that make?

# %%
class StageTwo:
    def __init__(self, model):
        self.params = list(model.parameters())
        self.mine = [torch.empty(0) for _ in self.params]  # this rank's quarter of each gradient
        self.adams = [Adam(quarter(param.data.view(-1))) for param in self.params]
        for index, param in enumerate(self.params):
            param.register_post_accumulate_grad_hook(lambda param, index=index: self.ready(index, param))

    def ready(self, index, param):
        self.mine[index] = torch.empty(param.numel() // dist.get_world_size())
        dist.reduce_scatter_single(self.mine[index], param.grad.view(-1))
        param.grad = None  # freed while backward goes on

    def step(self):
        for param, grad, adam in zip(self.params, self.mine, self.adams, strict=True):
            adam.step(grad / dist.get_world_size())
            dist.all_gather_single(param.data.view(-1), quarter(param.data.view(-1)).clone())
        self.mine = [torch.empty(0) for _ in self.params]

    def parameters(self):
        return torch.cat([param.detach().flatten() for param in self.params])


run = try_out("stage 2", StageTwo, "predicted 4 + 4/4 + 8/4 = 7")
print(f"stage 2: {len(steps_of(run.trace, 0)) // STEPS} collectives a step; stage 1 needed 2")

# %% [markdown]
# The bytes are as predicted, and the traffic in bytes has not changed. But it goes in many small
# collectives, and notebook [03](03_cost_model.ipynb) has told what each of them costs: a latency. Therefore
# real implementations put the parameters of a layer or a block together into a *unit* (or bucket), and cut
# that. Which gives the next question, *when is a unit complete?*, and that is for the lab.

# %% [markdown]
# ## Stage 3: shard the weights
#
# The weights are the last thing that every rank has whole. But a layer computes with whole matrices. So:
# **gather, use, free**, in forward, and once more in backward.
#
# The Linear layers hold almost all parameters of a Transformer; let us shard those. An `autograd.Function`
# says exactly what happens: forward gathers W and lets go of it when it returns; what it saves for backward
# is the *shard*. Backward gathers W again for the gradient of x; and the gradient of W leaves as a shard,
# by reduce-scatter.

# %%
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, shape):
        ctx.save_for_backward(x, shard)
        ctx.shape = shape
        return x @ gather(shard, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        to_x = grad @ gather(shard, ctx.shape)
        to_weight = grad.flatten(0, -2).T @ x.flatten(0, -2)
        mine = torch.empty_like(shard)
        dist.reduce_scatter_single(mine, to_weight.view(-1))
        return to_x, mine / dist.get_world_size(), None


def gather(shard, shape):
    whole = torch.empty(shape)
    dist.all_gather_single(whole.view(-1), shard.detach())
    return whole


class ShardedLinear(nn.Module):
    """A Linear of which this rank holds a quarter of the weight, and the whole bias."""

    def __init__(self, linear):
        super().__init__()
        self.shape, self.bias = linear.weight.shape, linear.bias
        self.shard = nn.Parameter(quarter(linear.weight.detach().view(-1)).clone())

    def forward(self, x):
        return GatheredLinear.apply(x, self.shard, self.shape) + self.bias


# %% [markdown]
# What is not in a Linear of a block (embeddings, norms, biases: a few per cent) stays whole, with its
# gradients all-reduced, as in plain DP.
#
# **Predict.** Say 90 % of the parameters are in shards. Traffic: once for forward, once for backward, once
# for the gradients. So how many times (p-1)/p of the parameters in a step? And what is different about the
# *peak*?

# %%
class StageThree:
    def __init__(self, model):
        self.names = [name for name, _ in model.named_parameters()]
        self.linears = {}
        for block_name, block in model.blocks.named_children():
            for path, linear in [(n, m) for n, m in block.named_modules() if isinstance(m, nn.Linear)]:
                parent, _, name = path.rpartition(".")
                sharded = ShardedLinear(linear)
                setattr(block.get_submodule(parent), name, sharded)
                self.linears[f"blocks.{block_name}.{path}.weight"] = sharded
        self.model = model
        shards = {id(sharded.shard) for sharded in self.linears.values()}
        self.whole = [param for param in model.parameters() if id(param) not in shards]
        self.adams = [(param, Adam(param.data)) for param in model.parameters()]

    def step(self):
        summed = torch.cat([param.grad.flatten() for param in self.whole])
        dist.all_reduce(summed)
        for param, grad in zip(self.whole, summed.split([p.numel() for p in self.whole]), strict=True):
            param.grad = grad.view_as(param) / dist.get_world_size()
        for param, adam in self.adams:
            adam.step(param.grad)
            param.grad = None

    def parameters(self):
        whole = dict(self.model.named_parameters())
        whole |= {name: gather(linear.shard, linear.shape) for name, linear in self.linears.items()}
        return torch.cat([whole[name].detach().flatten() for name in self.names])


with torch.random.fork_rng():
    in_linears = sum(m.weight.numel() for m in build().blocks.modules() if isinstance(m, nn.Linear)) / NUMEL
held = 16 * in_linears / RANKS + 16 * (1 - in_linears)
print(f"{in_linears:.0%} of the parameters are weights of Linear layers in blocks")
print(f"predicted: {held:.2f} bytes a parameter, {3 * in_linears + 2 * (1 - in_linears):.2f} times the parameters sent")
_ = try_out("stage 3", StageThree, f"predicted {held:.2f}")

# %% [markdown]
# Close to 16/4, and to 3: **1.5 times the traffic of plain DP for 1/p of the state**. That is the whole
# bargain of ZeRO-3 and FSDP (*Fully Sharded Data Parallel*, PyTorch's implementation of it).
#
# ## Through one step
#
# **Predict.** Draw it before you run it: the bytes alive during one step, in all four. When is each at its
# highest?

# %%
draw_live_bytes({name: results[name]["curve"] for name in NAMES}, title="one step on rank 0 of 4, Adam, float32")
plt.show()
for name in NAMES:
    print(f"{name:>8}: at the peak {results[name]['peak']:5.2f} bytes a parameter")

# %% [markdown]
# The hill in the middle is the activations (激活): forward piles them up, backward takes them down. Sharding
# the state does nothing about them, since every rank has its own rows: when activations are what does not
# fit, checkpointing or a smaller micro-batch helps, not ZeRO. The thin teeth on the curve of stage 3 are
# weights that come and go.
#
# Plain DP has its peak in the update, where Adam's temporary tensors come on top of the whole state. In the
# other stages the update works on a quarter.

# %% [markdown]
# ## What torch does
#
# `ZeroRedundancyOptimizer` is torch's stage 1, beside DistributedDataParallel; `fully_shard` (FSDP2) is its
# stage 3.
#
# **Predict.** ZeroRedundancyOptimizer does not touch the gradients: DDP all-reduces them as always. Then
# each owner broadcasts what it has updated. Is that 2, or more?

# %%
def with_zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = build()
    parallel = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=3e-3, eps=1e-5)
    dist.barrier()  # DDP has broadcast the model: not part of a step
    for step in range(STEPS):
        tokens, targets = my_batch(step)
        nn.functional.cross_entropy(parallel(tokens).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def with_fsdp2():
    from torch.distributed.fsdp import fully_shard

    model = build()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    dist.barrier()
    for step in range(STEPS):
        model.loss(*my_batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()  # reading the result is not part of a step either
    return torch.cat([param.full_tensor().detach().flatten() for param in model.parameters()])


def both():
    return with_zero_redundancy(), with_fsdp2()


run = launch(both, ranks=RANKS)
for pair, name in enumerate(("ZeroRedundancyOptimizer", "fully_shard")):
    times = sent_in_a_step(run.trace, pair)
    off = (run.values[0][pair] - results["plain DP"]["parameters"]).abs().max()
    print(f"{name}: {times:.2f} times (p-1)/p of the parameters a step, parameters differ by at most {off:.0e}")
    kinds = [event.op for event in steps_of(run.trace, 0, pair)]
    print(f"     {STEPS} steps:", ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))))

# %% [markdown]
# Three, not two, for torch's stage 1: a whole all-reduce (2) and a broadcast of the parameters (1). It
# saves memory, but it does not use the reduce-scatter that would make it free. And FSDP2 sends what our
# stage 3 sends; a little less than 3, because the root (embeddings and the last norm) is gathered once and
# kept for backward.
#
# FSDP2 also starts the all-gather of the *next* block while the present one computes (**prefetch**, 预取).
# Look at the timeline of a step of ours: every gather stands in the way of the computation that needs it.

# %%
def one_step():
    model = build()
    way = StageThree(model)
    model.loss(*my_batch(0)).backward()
    way.step()


run = launch(one_step, ranks=RANKS)
run.trace.plot()
plt.show()
waited = sum(event.end - event.start for event in run.trace.of(0) if event.end)
print(f"rank 0 spent {waited / run.trace.seconds:.0%} of the run in collectives, one after the other")

# %% [markdown]
# ## The lecture's question: why does sharding bring communication?
#
# Since a layer computes with *whole* weights, shards must be put together before it runs (all-gather), in
# forward and in backward. Since every rank's rows make gradients for *all* weights, they must be summed and
# brought to their owners (reduce-scatter). Memory goes down by p; what comes up in exchange is traffic, and
# the need to hide it behind computation.
#
# ## What to take with you
#
# - 16 bytes a parameter: 2 weights, 2 gradients, 12 states. Stage 1 shards 12 of them, stage 2 14, stage 3
#   all.
# - Traffic in units of the parameters: 2, 2, 3. The first two are an all-reduce, cut in the middle.
# - An owner updates its piece, and the new piece must reach whoever computes with it.
# - Activations are not sharded by any stage.
# - Memory is saved only by what is really freed: count it.
#
# **Next**: [lab 04](../labs/lab04_zero/lab04_zero.ipynb): shards with padding, units and hooks, prefetch,
# clipping, and a state saved by 4 ranks and loaded by 3.
