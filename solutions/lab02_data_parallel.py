# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 02: Data parallel
#
# **20 points.** You build data-parallel training: replicas that start equal and stay equal, gradients that
# travel in buckets *while* backward still computes, gradient accumulation that gives every token the same
# weight, a data order in which no sample is seen twice, and the parameter server that all this replaced. At
# the end you predict how far it scales.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | equal replicas: `broadcast_model`; the plain step: `average_gradients` | 5 |
# | 2 | `BucketedDataParallel`: buckets, hooks, overlap, `no_sync` | 6 |
# | 3 | accumulation over unequal micro-batches; whose sample is it | 4 |
# | 4 | the parameter server | 2 |
# | 5 | the scaling model; questions | 3 |
#
# *You should have read* notebooks 01 and 04. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like.
# - Grading runs the same tests with other models, batches, numbers of ranks and a rank that is late: read
#   the specification, not only the tests.
# - The tests look at **values** (held to one process that sees the whole batch, and to torch's own
#   `DistributedDataParallel`), and at **how** you got them: which collectives, how many, how large, when.
# - **You may call** everything in `torch.distributed`. **You may not use** `DistributedDataParallel`, FSDP
#   or a sampler of torch's: they are what you build.
# - To try something, add a cell: `launch(lambda: my_function(...), ranks=3).values`, or `%%ranks 3` on its
#   first line. `launch(...).trace.plot()` draws what travelled when.
#
# **Conventions.** `p` is the *world size* (进程总数), the number of ranks. `S` is the bytes of all gradients,
# each counted once. A parameter is *trainable* when `requires_grad` is true, *frozen* (冻结) when not. Two
# modules may share one parameter (*tied*, 权重共享): `model.parameters()` lists it once. A *buffer* (缓冲区) is a
# tensor of the model's state that no gradient moves, such as a running mean: `model.buffers()`.
#
# **gloo moves memory, not elements.** A tensor that is not contiguous, such as `w[:, ::2]`, comes out of a
# collective garbled, without an error. `x.contiguous()` is a copy in order, or `x` itself if it is so
# already.

# %% shared="imports"
from itertools import pairwise
from time import sleep

import torch
import torch.distributed as dist
from torch import float32, float64, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from utils import check, launch
from utils.checks.by_hand import watched, written_without

VOCAB, HIDDEN = 7, 5


class Net(nn.Module):
    """A language model in small, with all that a data-parallel step must think of.

    Embedding and head share one weight (tied), `shift` is frozen, `branches` are layers of which a batch may
    use some, and `seen` and `average` are buffers, which training changes and no gradient does.
    """

    def __init__(self, branches: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.shift = nn.Parameter(torch.randn(HIDDEN), requires_grad=False)
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))
        self.branches = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(branches))
        self.head = nn.Linear(HIDDEN, VOCAB)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(HIDDEN))

    def forward(self, tokens: torch.Tensor, used: tuple[int, ...] = ()) -> torch.Tensor:
        """tokens [N] -> logits [N, VOCAB], through the branches in `used`."""
        x = self.embed(tokens) + self.shift
        if self.training:
            self.seen += len(tokens)
            self.average.lerp_(x.detach().mean(0), 0.25)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        for branch in used:
            x = x + torch.tanh(self.branches[branch](x))
        return self.head(x)


class Mark(torch.autograd.Function):
    """Does nothing forward; in backward, when the gradient passes, meets the others at a barrier."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        dist.barrier()
        return grad


class Chain(nn.Module):
    """Linear layers one after the other; with `mark`, a Mark stands between each two of them."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: torch.Tensor, mark: bool = False) -> torch.Tensor:
        for k, layer in enumerate(self.layers):
            if k:
                x = torch.tanh(x)
                x = Mark.apply(x) if mark else x
            x = layer(x)
        return x


def made(build, seed: int, dtype: torch.dtype = float32) -> nn.Module:
    """The model that `build()` makes from this seed: the same wherever it is made."""
    torch.manual_seed(seed)
    return build().to(dtype)


def batch(rank: int, step: int, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens [size] and targets [size] that rank `rank` works on in step `step`."""
    generator = torch.Generator().manual_seed(1000 * step + rank + 1)
    tokens, targets = torch.randint(VOCAB, (2, size), generator=generator)
    return tokens, targets


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that have gradients, by name, each once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def copies(tensors: dict) -> dict:
    """Copies of the tensors as they are now; None stays None."""
    return {name: None if x is None else x.detach().clone() for name, x in tensors.items()}


def grads(model: nn.Module) -> dict:
    """Copies of the gradients by name; None where there is none."""
    return copies({name: p.grad for name, p in trainable(model).items()})


def state(model: nn.Module) -> dict:
    """Copies of all parameters and buffers by name."""
    return copies({**dict(model.named_parameters()), **dict(model.named_buffers())})


def descend(model: nn.Module, lr: float) -> None:
    """One step of plain SGD, w -= lr * grad, on everything that has a gradient."""
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= lr * p.grad


def nbytes(tensors) -> int:
    """The bytes of all these tensors together."""
    return sum(x.numel() * x.element_size() for x in tensors)


def watched_step(wrapper) -> list[str]:
    """The files of Python code that run while such a wrapper is made and takes a step."""

    def step():
        dp = wrapper(made(lambda: Chain([3, 2]), 10), 12)
        dp(torch.ones(2, 3)).sum().backward()
        dp.finish()

    return watched(step)[1]


READY_MADE = ("parallel/distributed.py", "fsdp/")

# %% [markdown]
# # Part 1. Equal replicas, one step
#
# In *data parallelism* (数据并行) each rank holds the whole model, a *replica* (副本), and works on its own part
# of the batch. One step is
#
# ```
# loss_r = loss(model(batch_r))     each rank r on its own samples
# loss_r.backward()                 a local gradient g_r
# g = (g_0 + ... + g_{p-1}) / p     all-reduce (全规约)
# optimizer.step()                  the same g everywhere: replicas stay equal
# ```
#
# They only *stay* equal if they *start* equal.

# %% [markdown]
# ## broadcast_model
#
# `broadcast_model(model, src)`: afterwards every rank's `model` holds what the model held on rank `src`:
# **all parameters, trainable or frozen, and all buffers**, whatever their type.
#
# - The parameters must stay the same objects (an optimizer may hold them already), and tied ones stay tied.
# - A buffer may be an integer, and may be non-contiguous.
#
# *Example*, p = 2, `src = 1`: rank 0 holds `w = [1, 2]`, `seen = 3`, rank 1 `w = [5, 6]`, `seen = 9`.
# Afterwards both hold `w = [5, 6]`, `seen = 9`.
#
# *Target:* `(p-1) S` bytes in all, where S is the size of everything, shared weights once. *Size:* about 5
# lines.

# %% solution="broadcast_model"
def broadcast_model(model: nn.Module, src: int = 0) -> None:
    ### BEGIN SOLUTION
    for tensor in [*model.parameters(), *model.buffers()]:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src)
        tensor.detach().copy_(whole)
    ### END SOLUTION


# %% test="broadcast_values" points=1
def replica(rank, seed, dtype):
    """A model unlike that of any other rank, with a buffer that is not contiguous."""
    model = made(Net, seed + rank, dtype)
    model.seen += 2**60 + 10 * rank  # float32 and float64 would round this
    model.average += rank + torch.arange(float(HIDDEN))
    model.register_buffer("table", (torch.arange(12.0) * (rank + 1)).view(3, 4)[:, ::2])
    return model


def probe_broadcast(src, seed, dtype):
    model = replica(dist.get_rank(), seed, dtype)
    held = dict(model.named_parameters())  # as an optimizer would hold them
    broadcast_model(model, src)
    values = copies({**held, **dict(model.named_buffers()), "head.weight": model.head.weight})
    return {"values": values, "trainable": {name: p.requires_grad for name, p in model.named_parameters()}}


def verdict_broadcast(src, seed, ranks, dtype=float32):
    run = launch(probe_broadcast, src, seed, dtype, ranks=ranks, timeout=10)
    source = replica(src, seed, dtype)
    right = {**state(source), "head.weight": source.head.weight.detach()}
    flags = {name: p.requires_grad for name, p in source.named_parameters()}
    for rank, value in enumerate(run.values):
        own = state(replica(rank, seed, dtype))
        own["head.weight"] = own["embed.weight"]
        what = f"broadcast_model from rank {src}: rank {rank} of {ranks}"
        likes = {"still what this rank held before, it was never sent": own} if rank != src else {}
        check.agree(value["values"], right, what, resembles=likes, rtol=0, atol=0)
        names = list(value["trainable"])
        assert names == list(flags), f"{what}: the model's parameters are now {names}. Are shared weights still shared?"
        assert value["trainable"] == flags, f"{what}: a frozen parameter must stay frozen, and only it."


verdict_broadcast(0, 1, 2)
verdict_broadcast(2, 1, 3)
### BEGIN HIDDEN TESTS
verdict_broadcast(0, 2, 1)
verdict_broadcast(1, 3, 4, float64)

### END HIDDEN TESTS

# %% test="broadcast_traffic" points=1
def probe_broadcast_bytes(src):
    broadcast_model(made(Net, dist.get_rank()), src)


def verdict_broadcast_bytes(src, ranks):
    run = launch(probe_broadcast_bytes, src, ranks=ranks, timeout=10)
    size = nbytes(state(made(Net, 0)).values())
    check.broadcast_traffic(run.trace, ranks, src, size, f"broadcast_model (p = {ranks}, rank {src})")


verdict_broadcast_bytes(0, 2)
verdict_broadcast_bytes(1, 3)
### BEGIN HIDDEN TESTS
verdict_broadcast_bytes(3, 4)
### END HIDDEN TESTS

# %% [markdown]
# ## average_gradients
#
# `average_gradients(model)`, called after `loss.backward()`: afterwards the `.grad` of every trainable
# parameter holds, on every rank, the mean over ranks of what the ranks held.
#
# - All ranks have batches of the same size, and each rank's loss is the mean over its own batch.
# - A parameter that a rank's batch did not use has `.grad = None` there, and counts as zero. (Where no rank
#   used it, zeros and None are both right.)
#
# *Example*, p = 2: gradients `[1, 2]` and `[5, None]` give `[3, 1]` on both ranks, with None counted as
# zero.
#
# *Target:* each rank sends `2(p-1)/p S` bytes; frozen parameters do not travel, tied ones travel once. One
# all-reduce a parameter is fine here. *Size:* about 7 lines.

# %% solution="average_gradients"
def average_gradients(model: nn.Module) -> None:
    ### BEGIN SOLUTION
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
    ### END SOLUTION


# %% test="average_values" points=1
def probe_average(steps, dtype):
    rank, seen = dist.get_rank(), []
    model = made(Net, 5, dtype)
    for step in range(steps):
        tokens, targets = batch(rank, step)
        model.zero_grad()
        cross_entropy(model(tokens, (0, 1, 2)), targets).backward()
        average_gradients(model)
        descend(model, 0.5)
        seen.append({"grads": grads(model), "weights": copies(dict(model.named_parameters()))})
    return seen


def one_process(ranks, steps, dtype):
    """The same training in one process, on the batches of all ranks joined; also each rank's own gradient."""
    model, seen = made(Net, 5, dtype), []
    for step in range(steps):
        pairs = [batch(rank, step) for rank in range(ranks)]
        own = []
        for tokens, targets in [*pairs, tuple(torch.cat(part) for part in zip(*pairs))]:
            model.zero_grad()
            cross_entropy(model(tokens, (0, 1, 2)), targets).backward()
            own.append(grads(model))
        descend(model, 0.5)
        seen.append({"own": own[:-1], "grads": own[-1], "weights": copies(dict(model.named_parameters()))})
    return seen


def verdict_average(ranks, steps=2, dtype=float32, delay=None):
    run = launch(probe_average, steps, dtype, ranks=ranks, timeout=10, delay=delay)
    tight = {"rtol": 1e-9, "atol": 1e-12} if dtype is float64 else {}
    for step, right in enumerate(one_process(ranks, steps, dtype)):
        for rank, value in enumerate(run.values):
            where = f"(p = {ranks}, rank {rank}, step {step})"
            hints = {f"summed over the {ranks} ranks but never divided": ranks}
            hints |= {f"divided by the {ranks} ranks twice": 1 / ranks}
            likes = {"this rank's own gradient, nothing was averaged": right["own"][rank]}
            likes["rank 0's gradient"] = right["own"][0]
            what = f"average_gradients {where}"
            check.agree(value[step]["grads"], right["grads"], what, suspects=hints, resembles=likes, **tight)
            check.agree(value[step]["weights"], right["weights"], f"weights after SGD {where}", **tight)


verdict_average(2)
verdict_average(3)
### BEGIN HIDDEN TESTS
verdict_average(1)
verdict_average(4, 3, float64, delay={2: 0.02})
### END HIDDEN TESTS

# %% test="average_special" points=1
def probe_special(plan):
    rank, seen = dist.get_rank(), []
    model = made(Net, 6)
    for step, used in enumerate(plan):
        model.zero_grad()
        tokens, targets = batch(rank, step)
        cross_entropy(model(tokens, used[rank]), targets).backward()
        average_gradients(model)
        seen.append(grads(model))
    return seen


def verdict_special(plan, ranks):
    """plan[step][rank] is the branches that the rank's batch uses in that step."""
    run = launch(probe_special, plan, ranks=ranks, timeout=10)
    model = made(Net, 6)
    for step, used in enumerate(plan):
        model.zero_grad()
        for rank in range(ranks):  # gradients of all ranks add up in one model
            tokens, targets = batch(rank, step)
            (cross_entropy(model(tokens, used[rank]), targets) / ranks).backward()
        for rank, value in enumerate(run.values):
            what = f"average_gradients where ranks use branches {used} (rank {rank})"
            users = {f"summed over the {ranks} ranks, and never divided by {ranks}": ranks}
            users |= {f"divided by {n}, the ranks that used it, not by all {ranks}": ranks / n for n in range(2, ranks)}
            users |= {f"divided by the {ranks} ranks twice": 1 / ranks}
            check.agree(value[step], grads(model), what, suspects=users)


verdict_special([[(0,), (1,)], [(1, 0), ()]], 2)
### BEGIN HIDDEN TESTS
verdict_special([[(0, 1, 2), (), (1,)], [(2,), (2,), (0,)], [(), (), ()]], 3)
verdict_special([[(0,), (1,), (2,), (0, 1)], [(2,), (), (), ()]], 4)
### END HIDDEN TESTS

# %% test="average_traffic" points=1
def probe_average_bytes():
    model = made(Net, 7)
    tokens, targets = batch(dist.get_rank(), 0)
    cross_entropy(model(tokens, (0, 1, 2)), targets).backward()
    average_gradients(model)


def verdict_average_bytes(ranks):
    run = launch(probe_average_bytes, ranks=ranks, timeout=10)
    moving = trainable(made(Net, 7))
    slack = 8 * (ranks - 1) * ranks  # a buffer padded to a multiple of p
    uneven = 8 * (ranks - 1) * len(moving)  # pieces that p does not divide
    size, what = nbytes(moving.values()), f"average_gradients (p = {ranks})"
    check.all_reduce_traffic(run.trace, ranks, size, what, spare=slack, uneven=uneven)


verdict_average_bytes(3)
### BEGIN HIDDEN TESTS
verdict_average_bytes(1)
verdict_average_bytes(4)
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. Buckets that travel during backward
#
# Backward makes gradients **from the last layer to the first**. The gradients of the last layers are
# complete while the first layers still compute, so they can travel in the meantime. One message for each
# parameter costs too many latencies, so gradients are put together into *buckets* (梯度桶): one all-reduce
# each.

# %% [markdown]
# ## BucketedDataParallel
#
# ```
# dp = BucketedDataParallel(model, bucket_bytes)
# loss(dp(tokens), targets).backward()     # hooks start all-reduces while this runs
# dp.finish()                              # waits; now every .grad is the mean over ranks
# optimizer.step()
# ```
#
# **The constructor** gets a model that is already equal on all ranks (part 1). It makes the buckets: take
# the trainable parameters in the **reverse** order of `model.parameters()`; a parameter joins the open
# bucket if the bucket then holds at most `bucket_bytes` bytes, else it opens the next one. (So one that is
# larger than `bucket_bytes` is alone in its bucket.) And it registers a hook (钩子) on each parameter:
# `p.register_post_accumulate_grad_hook(fn)` calls `fn(p)` each time that backward has added to `p.grad`.
#
# **While backward runs**: as soon as the last gradient of a bucket is there, start the bucket's **one**
# all-reduce with `async_op=True`. Buckets start **in order**, on all ranks: bucket k waits until bucket k-1
# has been started, even if k is complete first. (Otherwise ranks that use different layers send different
# buckets at the same time, and gloo adds up whatever meets.)
#
# **finish()**, called after each backward that synchronises:
#
# 1. starts, in order, the buckets that are still open: some parameters were not used on this rank, and what
#    has no gradient counts as zero;
# 2. waits for all of them, and puts the mean over ranks into `.grad` of **every** trainable parameter;
# 3. broadcasts rank 0's buffers, so that they are the same everywhere too;
# 4. leaves all ready for the next step.
#
# `no_sync()` comes below; write the class so that `self.sync` switches the hooks off.
#
# *Example*, `model.parameters()` of 4, 3, 5 and 2 elements, float32, `bucket_bytes = 28` (7 elements):
# buckets of [2, 5], [3, 4] elements: one all-reduce with 7, then one with 7.
#
# *Target:* one all-reduce a bucket and step, no others. *Size:* about 40 lines in all. All parameters have
# the same dtype, which need not be float32.

# %% [markdown]
# ## no_sync
#
# With `with dp.no_sync():` around forward and backward nothing is sent: gradients add up in `.grad`. The
# next backward outside sends what has added up, once:
#
# ```
# with dp.no_sync():
#     (loss(dp(first)) / 2).backward()
# (loss(dp(second)) / 2).backward()
# dp.finish()
# ```
#
# A parameter may have been used in the first micro-batch only: its gradient counts all the same.

# %% solution="bucketed_data_parallel"
class BucketedDataParallel:
    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        self.model, self.sync = model, True
        ### BEGIN SOLUTION
        self.buckets = [[]]
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            if self.buckets[-1] and self._bytes([*self.buckets[-1], p]) > bucket_bytes:
                self.buckets.append([])
            self.buckets[-1].append(p)
        self.bucket_of = {p: k for k, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._reset()

    def _bytes(self, params):
        return sum(p.numel() * p.element_size() for p in params)

    def _reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.started = []  # (flat gradient, work) of each bucket on its way, in order

    def _ready(self, p):
        if self.sync:
            self.missing[self.bucket_of[p]] -= 1
            while len(self.started) < len(self.buckets) and self.missing[len(self.started)] == 0:
                self._start()

    def _start(self):
        bucket = self.buckets[len(self.started)]
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([part.reshape(-1) for part in parts])
        self.started.append((flat, dist.all_reduce(flat, async_op=True)))
        ### END SOLUTION

    def __call__(self, *args):
        return self.model(*args)

    def finish(self) -> None:
        ### BEGIN SOLUTION
        while len(self.started) < len(self.buckets):
            self._start()
        for bucket, (flat, work) in zip(self.buckets, self.started):
            work.wait()
            flat /= dist.get_world_size()
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p)
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)
        self._reset()
        ### END SOLUTION

    def no_sync(self):
        """A context manager: inside it, backward only adds to .grad."""
        ### BEGIN SOLUTION
        from contextlib import contextmanager

        @contextmanager
        def silence():
            self.sync = False
            try:
                yield
            finally:
                self.sync = True

        return silence()
        ### END SOLUTION


# %% test="bucket_values" points=1
def probe_buckets(sizes, bucket_bytes, steps, dtype, late):
    rank, seen = dist.get_rank(), []
    model = made(lambda: Chain(sizes), 11, dtype)
    dp = BucketedDataParallel(model, bucket_bytes)
    for step in range(steps):
        x = torch.randn(3, sizes[0], generator=torch.Generator().manual_seed(50 * step + rank)).to(dtype)
        model.zero_grad()
        loss = dp(x).square().mean()
        sleep(late * (rank == dist.get_world_size() - 1))
        loss.backward()
        dp.finish()
        seen.append({"grads": grads(model)})  # read at once: what is not waited for is not there yet
        descend(model, 0.3)
        seen[-1]["weights"] = copies(dict(model.named_parameters()))
    return seen


def chain_alone(sizes, ranks, steps, dtype):
    """The same training in one process on all the rows."""
    model, seen = made(lambda: Chain(sizes), 11, dtype), []
    for step in range(steps):
        makers = [torch.Generator().manual_seed(50 * step + rank) for rank in range(ranks)]
        rows = [torch.randn(3, sizes[0], generator=maker).to(dtype) for maker in makers]
        own = []
        for x in [*rows, torch.cat(rows)]:
            model.zero_grad()
            model(x).square().mean().backward()
            own.append(grads(model))
        descend(model, 0.3)
        seen.append({"own": own[:-1], "grads": own[-1], "weights": copies(dict(model.named_parameters()))})
    return seen


def verdict_buckets(sizes, bucket_bytes, ranks, steps=2, dtype=float32, late=0.0):
    run = launch(probe_buckets, sizes, bucket_bytes, steps, dtype, late, ranks=ranks, timeout=10)
    tight = {"rtol": 1e-9, "atol": 1e-12} if dtype is float64 else {}
    for step, right in enumerate(chain_alone(sizes, ranks, steps, dtype)):
        for rank, value in enumerate(run.values):
            where = f"(p = {ranks}, rank {rank}, step {step}{', the last rank is late' if late else ''})"
            hints = {f"summed over the {ranks} ranks but never divided": ranks}
            hints |= {f"divided by the {ranks} ranks twice": 1 / ranks}
            own, hasty = right["own"][rank], "its all-reduce was not done yet when finish() returned"
            likes = {f"this rank's own gradient: never averaged, or {hasty}": own}
            likes[f"this rank's own gradient divided by p: {hasty}"] = {k: g / ranks for k, g in own.items()}
            what = f"gradients after finish() {where}"
            check.agree(value[step]["grads"], right["grads"], what, suspects=hints, resembles=likes, **tight)
            check.agree(value[step]["weights"], right["weights"], f"weights after SGD {where}", **tight)


files = launch(lambda: watched_step(BucketedDataParallel), ranks=1, timeout=10).values[0]
written_without(files, READY_MADE, "BucketedDataParallel")
verdict_buckets([4, 8, 8, 6, 3], 240, 2, late=0.03)
verdict_buckets([4, 8, 8, 6, 3], 240, 3)
### BEGIN HIDDEN TESTS
verdict_buckets([3, 5, 2], 60, 1)
verdict_buckets([5, 7, 3, 2], 200, 4, 3, float64)
### END HIDDEN TESTS

# %% test="bucket_replicas" points=1
def probe_replicas(steps):
    rank, seen = dist.get_rank(), []
    model = made(Net, 12)
    dp = BucketedDataParallel(model, 150)
    for step in range(steps):
        tokens, targets = batch(rank, step, size=3)
        model.zero_grad()
        cross_entropy(dp(tokens, (0, 1, 2)), targets).backward()
        dp.finish()
        descend(model, 0.3)
        seen.append(state(model))
    return seen


def verdict_replicas(ranks, steps=3):
    run = launch(probe_replicas, steps, ranks=ranks, timeout=10, delay={ranks - 1: 0.02})
    zero = made(Net, 12)  # walks the same way, and sees rank 0's tokens
    for step in range(steps):
        first = run.values[0][step]
        before = run.values[0][step - 1] if step else state(zero)
        zero.load_state_dict({**before, "head.weight": before["embed.weight"]})
        zero(batch(0, step, size=3)[0])
        for rank, value in enumerate(run.values):
            where = f"(p = {ranks}, step {step}, rank {rank})"
            check.agree(value[step], first, f"replicas {where}, beside rank 0", rtol=0, atol=0)
        buffers = {name: first[name] for name in ("seen", "average")}
        check.agree(buffers, copies(dict(zero.named_buffers())), f"buffers of rank 0 (p = {ranks}, step {step})")


files = launch(lambda: watched_step(BucketedDataParallel), ranks=1, timeout=10).values[0]
written_without(files, READY_MADE, "BucketedDataParallel")
verdict_replicas(2)
### BEGIN HIDDEN TESTS
verdict_replicas(3)
verdict_replicas(4, 2)
### END HIDDEN TESTS

# %% test="bucket_sizes" points=1
def probe_sizes(sizes, bucket_bytes, dtype, frozen):
    model = made(lambda: Chain(sizes), 13, dtype)
    for layer in frozen:
        model.layers[layer].weight.requires_grad_(False)
    dp = BucketedDataParallel(model, bucket_bytes)
    for _ in range(2):
        model.zero_grad()
        dp(torch.ones(2, sizes[0], dtype=dtype) + dist.get_rank()).square().mean().backward()
        dp.finish()


def verdict_sizes(sizes, bucket_bytes, buckets, ranks, dtype=float32, frozen=(), forward=()):
    """buckets: elements of each bucket in order, worked out by hand; forward: in the order of parameters()."""
    run = launch(probe_sizes, sizes, bucket_bytes, dtype, frozen, ranks=ranks, timeout=10)
    pairs = [(a * b * (k not in frozen), b) for k, (a, b) in enumerate(pairwise(sizes))]
    single = [numel for pair in reversed(pairs) for numel in reversed(pair) if numel]
    misconceptions = {
        "one all-reduce for each parameter": single,
        "one all-reduce for each parameter, first layer first": single[::-1],
        "the last bucket was never sent": buckets[:-1],
        "everything in one bucket, whatever bucket_bytes says": [sum(buckets)],
        "buckets are filled from the first layer on; backward begins with the last": list(forward),
        "buckets are filled in the right order and sent in reverse": buckets[::-1],
    }
    doubled = {why: numels * 2 for why, numels in misconceptions.items()}
    what = f"two steps, p = {ranks}, bucket_bytes = {bucket_bytes}"
    check.collective_sizes(run.trace, "all_reduce", buckets * 2, what, doubled)


files = launch(lambda: watched_step(BucketedDataParallel), ranks=1, timeout=10).values[0]
written_without(files, READY_MADE, "BucketedDataParallel")
# parameters of 32, 8, 64, 8, 48, 6, 18 and 3 elements; a bucket holds 60
verdict_sizes([4, 8, 8, 6, 3], 240, [27, 56, 64, 40], 2, forward=[40, 64, 56, 27])
### BEGIN HIDDEN TESTS
# parameters of 15, 5, 35, 7 and 14, 2 elements; a bucket holds 25 float64
verdict_sizes([3, 5, 7, 2], 200, [23, 35, 20], 3, float64, forward=[20, 35, 23])
verdict_sizes([3, 5, 7, 2], 1, [2, 14, 7, 35, 5, 15], 2, forward=[15, 5, 35, 7, 14, 2])
verdict_sizes([3, 5, 7, 2], 10**6, [78], 4)


def probe_net_sizes(bucket_bytes):
    model = made(Net, 13)
    dp = BucketedDataParallel(model, bucket_bytes)
    tokens, targets = batch(dist.get_rank(), 0)
    cross_entropy(dp(tokens, (0, 1, 2)), targets).backward()
    dp.finish()


# Net: 35 shared by embedding and head, five layers of 25 and 5, and 7; a bucket holds 37; shift is frozen
run = launch(probe_net_sizes, 148, ranks=2, timeout=10)
twice = {"the shared weight travels twice: each parameter belongs into one bucket": [7, 35, 35, 30, 30, 30, 25, 35]}
check.collective_sizes(run.trace, "all_reduce", [37, 35, 30, 30, 25, 35], "one step of Net, bucket_bytes = 148", twice)
# the second layer's weight is frozen: 15, 5, 7, 14 and 2 elements; exactly 23 fill a bucket
verdict_sizes([3, 5, 7, 2], 92, [23, 20], 2, frozen=(1,), forward=[20, 21, 2])
### END HIDDEN TESTS

# %% test="bucket_overlap" points=1
def probe_overlap(layers, bucket_bytes):
    model = made(lambda: Chain([6] * (layers + 1)), 14)
    dp = BucketedDataParallel(model, bucket_bytes)
    for _ in range(2):
        model.zero_grad()
        dp(torch.ones(2, 6) + dist.get_rank(), True).square().mean().backward()
        dp.finish()


def verdict_overlap(layers, each, ranks):
    """`each` layers of 42 elements fill a bucket; least[k]: buckets that are complete at mark k of backward."""
    run = launch(probe_overlap, layers, each * 42 * 4, ranks=ranks, timeout=10)
    least = [done // each for done in range(1, layers)]
    check.overlap(run.trace, least, f"backward through {layers} layers, {each} a bucket (p = {ranks})", steps=2)


files = launch(lambda: watched_step(BucketedDataParallel), ranks=1, timeout=10).values[0]
written_without(files, READY_MADE, "BucketedDataParallel")
verdict_overlap(4, 1, 2)
### BEGIN HIDDEN TESTS
verdict_overlap(5, 2, 3)
verdict_overlap(6, 3, 4)
### END HIDDEN TESTS

# %% test="bucket_unused" points=1
def probe_unused(plan, bucket_bytes):
    rank, seen = dist.get_rank(), []
    model = made(Net, 15)
    dp = BucketedDataParallel(model, bucket_bytes)
    for step, used in enumerate(plan):
        model.zero_grad()
        tokens, targets = batch(rank, step)
        cross_entropy(dp(tokens, used[rank]), targets).backward()
        dp.finish()
        seen.append(grads(model))
    return seen


def verdict_unused(plan, bucket_bytes, ranks, delay=None):
    """plan[step][rank] is the branches that the rank's batch uses in that step."""
    run = launch(probe_unused, plan, bucket_bytes, ranks=ranks, timeout=10, delay=delay)
    model = made(Net, 15)
    for step, used in enumerate(plan):
        own = []
        for rank in range(ranks):
            model.zero_grad()
            tokens, targets = batch(rank, step)
            cross_entropy(model(tokens, used[rank]), targets).backward()
            mine = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in trainable(model).items()}
            own.append(mine)
        right = {name: sum(mine[name] for mine in own) / ranks for name in own[0]}
        idle = [f"branches.{k}.{part}" for k in range(3) for part in ("weight", "bias") if k not in sum(used, ())]
        right |= dict.fromkeys(idle)  # used by nobody: zeros or None
        for rank, value in enumerate(run.values):
            what = f"gradients in step {step} where ranks use branches {used} (rank {rank})"
            users = {f"summed over the {ranks} ranks, and never divided by {ranks}": ranks}
            users |= {f"divided by {n}, the ranks that used it, not by all {ranks}": ranks / n for n in range(2, ranks)}
            users |= {f"divided by the {ranks} ranks twice": 1 / ranks}
            likes = {"this rank's own gradient: it was left out of the all-reduce": own[rank]}
            check.agree(value[step], right, what, suspects=users, resembles=likes)


files = launch(lambda: watched_step(BucketedDataParallel), ranks=1, timeout=10).values[0]
written_without(files, READY_MADE, "BucketedDataParallel")
verdict_unused([[(0,), (0,)], [(0, 1), (2,)]], 4 * 30, 2, delay={1: 0.02})
### BEGIN HIDDEN TESTS
verdict_unused([[(0,), (2,)], [(2,), (0,)], [(), ()], [(1, 2), (0, 1)]], 4 * 30, 2)
verdict_unused([[(2, 0), (), (1,)], [(), (1,), (0, 1, 2)]], 4 * 12, 3)
verdict_unused([[(0,), (1,), (2,), ()], [(), (), (), (2, 1, 0)]], 4 * 1000, 4, delay={1: 0.02})
### END HIDDEN TESTS

# %% test="bucket_no_sync" points=1
def probe_no_sync(plan, rounds):
    """plan[k][rank]: branches used in micro-batch k; only the last micro-batch synchronises."""
    rank, seen = dist.get_rank(), []
    model = made(Net, 16)
    dp = BucketedDataParallel(model, 150)
    for number in range(rounds):
        model.zero_grad()
        losses = []
        for k, used in enumerate(plan[:-1]):
            tokens, targets = batch(rank, 10 * number + k)
            with dp.no_sync():
                loss = cross_entropy(dp(tokens, used[rank]), targets) / len(plan)
                loss.backward()
            losses.append(loss.item())
        dist.barrier()
        sleep(0.02 * (rank == dist.get_world_size() - 1))  # the others finish() first, and have to wait
        tokens, targets = batch(rank, 10 * number + len(plan) - 1)
        (cross_entropy(dp(tokens, plan[-1][rank]), targets) / len(plan)).backward()
        dp.finish()
        seen.append(grads(model))
    return seen


def verdict_no_sync(plan, ranks, rounds=2):
    run = launch(probe_no_sync, plan, rounds, ranks=ranks, timeout=10)
    for rank in range(ranks):
        ops = [event.op for event in run.trace.of(rank) if event.op in ("all_reduce", "barrier")]
        early = ops[: ops.index("barrier")].count("all_reduce")
        assert not early, f"Rank {rank} started {early} all-reduces inside no_sync(): gradients travel once a step."
    model = made(Net, 16)
    for number in range(rounds):
        sums = []
        for k, used in enumerate(plan):
            model.zero_grad()
            for rank in range(ranks):
                tokens, targets = batch(rank, 10 * number + k)
                (cross_entropy(model(tokens, used[rank]), targets) / ranks / len(plan)).backward()
            sums.append(grads(model))
        right = {name: add_up([part[name] for part in sums]) for name in sums[0]}
        last = {"the last micro-batch's gradient alone: the others got lost": sums[-1]}
        hints = {f"summed over the {ranks} ranks but never divided": ranks}
        hints |= {f"divided by the {ranks} ranks twice": 1 / ranks}
        for rank, value in enumerate(run.values):
            what = f"{len(plan)} micro-batches, {len(plan) - 1} in no_sync (p = {ranks}, rank {rank}, round {number})"
            check.agree(value[number], right, what, suspects=hints, resembles=last)


def add_up(tensors):
    return None if any(x is None for x in tensors) and all(x is None for x in tensors) else sum(
        x for x in tensors if x is not None
    )


verdict_no_sync([[(0, 1, 2)] * 2] * 3, 2)
### BEGIN HIDDEN TESTS
verdict_no_sync([[(0, 1), (2,)], [(), (1,)]], 2)
verdict_no_sync([[(0,), (0,), (0, 2)], [(1,), (), ()], [(), (), ()]], 3)


def torch_no_sync(micro_batches):  # the same with DistributedDataParallel's own no_sync
    ddp, rank = DistributedDataParallel(made(Net, 16)), dist.get_rank()
    batches = [batch(rank, k) for k in range(micro_batches)]
    for k, (tokens, targets) in enumerate(batches):
        ddp.require_backward_grad_sync = k == micro_batches - 1  # what no_sync() sets
        (cross_entropy(ddp(tokens, (0, 1, 2)), targets) / micro_batches).backward()
    return grads(ddp.module)


run = launch(probe_no_sync, [[(0, 1, 2)] * 2] * 3, 1, ranks=2, timeout=10)
theirs = check.reference(torch_no_sync, 3, ranks=2)
for rank, value in enumerate(run.values):
    check.agree(value[0], theirs.values[rank], f"gradients beside DistributedDataParallel's (rank {rank})")
for rank in range(2):
    ours, torchs = (sum(e.sent for e in one.trace.of(rank) if e.op == "all_reduce") for one in (run, theirs))
    assert ours == torchs, f"Rank {rank} sent {ours} bytes in all-reduces where DistributedDataParallel sends {torchs}."
### END HIDDEN TESTS

# %% [markdown]
# ## Watch it
#
# The next cell is not graded. A rank here "computes" by sleeping 4 ms in each layer of backward, so that it
# needs no core while it does: what you see is how your all-reduces lie in time, the fastest of nine tries.
# *Before you run it, say what you expect:* with 8 layers of 1 MiB, is one bucket for all the best size, one
# for each parameter, or something between, and why?
#
# On the right are two steps with buckets of 2 MiB: a bar reaches from the moment when an all-reduce was
# started to the moment when it had been waited for.

# %%
import matplotlib.pyplot as plt

from utils.measure import time_on_ranks
from utils.pictures.curves import size_label


class Slow(torch.autograd.Function):
    """Takes some time on the way back, without a core."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        sleep(ctx.seconds)
        return grad, None


def slow_step(dp, x, seconds):
    dp.model.zero_grad()
    for layer in dp.model.layers:
        x = Slow.apply(torch.tanh(layer(x)), seconds)
    x.square().mean().backward()
    dp.finish()


def step_seconds_by_bucket(bucket_sizes, warmup, tries):
    fastest = []
    for bucket_bytes in bucket_sizes:
        dp = BucketedDataParallel(made(lambda: Chain([512] * 9), 1), bucket_bytes)
        x = torch.ones(1, 512)
        fastest.append(min(time_on_ranks(slow_step, dp, x, 0.004, warmup=warmup, tries=tries)))
    return fastest


def watch_buckets():
    sizes = [2**k for k in (10, 20, 21, 22, 23, 24)]
    measured = launch(step_seconds_by_bucket, sizes, 1, 9, ranks=2, trace=False).values[0]
    for size, seconds in zip(sizes, measured):
        print(f"buckets of {size_label(size):>6}: {1e3 * seconds:5.1f} ms a step (32 ms of it are backward)")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2), layout="constrained", width_ratios=(2, 3))
    left.plot(range(len(sizes)), [1e3 * seconds for seconds in measured], "o-")
    left.axhline(32, color="gray", linestyle=":")
    left.set_xticks(range(len(sizes)), [size_label(size) for size in sizes], fontsize=8)
    left.set(xlabel="bucket_bytes", ylabel="ms a step", title="two ranks, 8 layers of 1 MiB", ylim=(0, None))
    launch(step_seconds_by_bucket, [2**21], 0, 2, ranks=2).trace.plot(right)
    plt.show()


watch_buckets()

# %% [markdown]
# # Part 3. Whose tokens, whose samples
#
# ## accumulate
#
# A batch that does not fit into memory is worked through in *micro-batches* (微批次), whose gradients are
# added up: *gradient accumulation* (梯度累积). The mean over a language batch is a mean over **tokens**, and
# micro-batches differ in how many tokens count: a target of -100 does not. Every token that counts must
# weigh the same, whichever micro-batch and rank it is in.
#
# `accumulate(model, micro_batches)` does forward and backward of all of this rank's micro-batches and
# leaves in `.grad`, on every rank, the gradient of
#
# $$L = \frac{1}{T}\sum_{\text{ranks}}\ \sum_{\text{micro-batches}}\ \sum_{\text{tokens that count}} \ell,
# \qquad T = \text{how many tokens count, over all ranks and micro-batches}$$
#
# and returns L as a number, the same on every rank.
#
# - `micro_batches` is a list of `(tokens [N], targets [N])`, as many on each rank. `model(tokens)` gives
#   logits `[N, VOCAB]`. The model is a plain module, equal on all ranks, without gradients; it sends
#   nothing itself.
# - Some micro-batch, or all of a rank's, may have no token that counts. If no rank has one, L is 0 and so
#   are all gradients.
# - `cross_entropy(logits, targets, ignore_index=-100, reduction="sum")` adds up over the tokens that count.
#
# *Example*: two micro-batches on one rank, 1 token with loss 2.0, and 7 tokens with mean loss 0.5. L = (2.0
# + 7 x 0.5) / 8 = 0.6875. The mean of the two means, 1.25, is wrong: the lonely token would weigh seven
# times as much.
#
# *Target:* gradients travel **once** a call, whatever the number of micro-batches; a few numbers more are
# free (32 bytes a rank). *Size:* about 12 lines; your `average_gradients` may help.

# %% solution="accumulate"
def accumulate(model: nn.Module, micro_batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    ### BEGIN SOLUTION
    count = torch.tensor([float(sum((targets != -100).sum() for _, targets in micro_batches)), 0.0])
    loss_sum = torch.zeros(())
    for tokens, targets in micro_batches:
        loss = cross_entropy(model(tokens), targets, ignore_index=-100, reduction="sum")
        loss.backward()
        loss_sum += loss.detach()
    count[1] = loss_sum
    dist.all_reduce(count)
    total = count[0].clamp(min=1)
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= total
    return float(count[1] / total)
    ### END SOLUTION


# %% test="accumulate_values" points=1
def token_batch(rank, step, count, size=8):
    """A micro-batch of which `count` tokens count, in places that depend on rank and step."""
    tokens, targets = batch(rank, step, size)
    masked = torch.randperm(size, generator=torch.Generator().manual_seed(7 * step + rank))[count:]
    return tokens, targets.index_fill(0, masked, -100)


def probe_accumulate(cases):
    rank, seen = dist.get_rank(), []
    for number, counts in enumerate(cases):
        model = made(lambda: Net(branches=0), 21)
        micro_batches = [token_batch(rank, 10 * number + k, count) for k, count in enumerate(counts[rank])]
        seen.append({"loss": float(accumulate(model, micro_batches)), "grads": grads(model)})
    return seen


def token_gradient(groups, weights):
    """The gradient of a weighted sum of the token means of groups of micro-batches, in one process."""
    model = made(lambda: Net(branches=0), 21)
    loss = 0 * sum(p.sum() for p in trainable(model).values())
    for group, weight in zip(groups, weights):
        tokens, targets = (torch.cat(part) for part in zip(*group))
        if int((targets >= 0).sum()):
            loss = loss + weight * cross_entropy(model(tokens), targets, ignore_index=-100)
    loss.backward()
    return loss.item(), grads(model)


def verdict_accumulate(cases, ranks):
    """cases[number][rank] is how many tokens count in each micro-batch of the rank."""
    run = launch(probe_accumulate, cases, ranks=ranks, timeout=10)
    for number, counts in enumerate(cases):
        k = len(counts[0])
        mine = [[token_batch(rank, 10 * number + i, c) for i, c in enumerate(own)] for rank, own in enumerate(counts)]
        every = [micro for own in mine for micro in own]
        loss, right = token_gradient([every], [1])
        _, by_micro = token_gradient([[micro] for micro in every], [1 / len(every)] * len(every))
        _, by_rank = token_gradient(mine, [1 / ranks] * ranks)
        likes = {"the mean of the micro-batches' own means; count tokens instead": by_micro}
        likes["the mean of the ranks' own token means; count the tokens of all ranks"] = by_rank
        tokens = sum(map(sum, counts))
        hints = {f"divided by the {ranks} ranks, although the tokens of all ranks are counted": 1 / ranks}
        hints |= {f"divided by the {k} micro-batches as well as by the tokens": 1 / k}
        hints |= {f"divided by the {ranks} ranks and the {k} micro-batches as well as by the tokens": 1 / ranks / k}
        hints |= {f"{ranks} times: summed over the ranks, and divided by the tokens of one": ranks}
        hints |= {f"the sum over all {tokens} tokens, never divided": tokens, "the sum over tokens": tokens / ranks}
        for rank, value in enumerate(run.values):
            what = f"accumulate where {counts} tokens count (rank {rank})"
            check.agree(value[number]["grads"], right, what, suspects=hints, resembles=likes)
            check.number(value[number]["loss"], loss, f"the loss that accumulate returned ({counts})", "", rel=1e-4)


verdict_accumulate([[[8, 8, 8], [8, 8, 8]], [[1, 7, 2], [5, 0, 8]]], 2)
### BEGIN HIDDEN TESTS
verdict_accumulate([[[1, 7]], [[4]]], 1)
verdict_accumulate([[[1, 7, 3], [0, 8, 0], [2, 0, 6]], [[0, 0], [0, 0], [3, 1]], [[0], [0], [0]]], 3)
verdict_accumulate([[[5], [1], [2], [8]], [[1, 1], [7, 7], [0, 1], [3, 0]]], 4)
### END HIDDEN TESTS

# %% test="accumulate_traffic" points=1
def probe_accumulate_bytes(micro_batches):
    model = made(lambda: Net(branches=0), 22)
    accumulate(model, [batch(dist.get_rank(), k) for k in range(micro_batches)])


def verdict_accumulate_bytes(micro_batches, ranks):
    run = launch(probe_accumulate_bytes, micro_batches, ranks=ranks, timeout=10)
    moving = trainable(made(lambda: Net(branches=0), 22))
    slack = 2 * (ranks - 1) * (4 * ranks + 32)  # a buffer padded to a multiple of p, and the counts
    uneven = 8 * (ranks - 1) * len(moving)  # pieces that p does not divide
    what = f"accumulate, {micro_batches} micro-batches (p = {ranks})"
    check.all_reduce_traffic(run.trace, ranks, nbytes(moving.values()), what, spare=slack, uneven=uneven)


verdict_accumulate_bytes(4, 2)
### BEGIN HIDDEN TESTS
verdict_accumulate_bytes(3, 3)
verdict_accumulate_bytes(2, 4)
### END HIDDEN TESTS

# %% [markdown]
# ## epoch_batches
#
# Which samples does a rank work on? `epoch_batches(num_samples, global_batch, rank, world, epoch, seed)`
# returns a list with one entry for each step of the epoch: the list of the sample numbers that rank `rank`
# works on in that step.
#
# - Over all ranks and steps of an epoch, **each** of the samples `0 .. num_samples - 1` comes exactly
#   **once**. None is dropped, none is repeated to fill up.
# - **Every rank has the same number of steps**, `ceil(num_samples / global_batch)`: a rank with one step
#   less would leave the others waiting in their all-reduce. Each step has `global_batch` samples over all
#   ranks together, the last one what is left.
# - In each step the ranks' shares differ by at most one sample. A share may be empty.
# - The order is random, differs from epoch to epoch and from seed to seed, and is the same each time for
#   the same seed and epoch. Ranks do not talk about it, and their own random numbers differ, so the order
#   must not depend on these. **It must not touch them either**: `torch.manual_seed` would give all ranks
#   the same dropout.
#
# *Example*, 5 samples, `global_batch = 4`, p = 2, order 3, 0, 4, 1, 2: rank 0 gets `[[3, 0], [2]]`, rank 1
# `[[4, 1], []]`. (Any even split will do.)
#
# *Hint:* `torch.randperm(n, generator=...)`. *Size:* about 4 lines. torch's own `DistributedSampler`
# repeats samples to make the shares equal: with 10 samples on 4 ranks, two come twice. That is harmless in
# training and wrong in a measured accuracy.

# %% solution="epoch_batches"
def epoch_batches(
    num_samples: int, global_batch: int, rank: int, world: int, epoch: int, seed: int = 0
) -> list[list[int]]:
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    order = torch.randperm(num_samples, generator=generator)
    return [step.tensor_split(world)[rank].tolist() for step in order.split(global_batch)]
    ### END SOLUTION


# %% test="epoch_once" points=1
def probe_epoch(cases):
    seen = []
    for num_samples, global_batch, world in cases:
        shares = []
        for rank in range(world):
            torch.manual_seed(rank)  # ranks have random numbers of their own
            steps = epoch_batches(num_samples, global_batch, rank, world, 0, 5)
            shares.append([list(map(int, step)) for step in steps])
        seen.append(shares)
    return seen


def verdict_epoch(cases):
    run = launch(probe_epoch, cases, ranks=None, timeout=10)
    for (num_samples, global_batch, world), shares in zip(cases, run.value):
        what = f"epoch_batches({num_samples} samples, global batch {global_batch}, p = {world})"
        steps = -(-num_samples // global_batch)
        for rank, share in enumerate(shares):
            assert len(share) == steps, (
                f"{what}: rank {rank} has {len(share)} steps, wanted {steps}: with unequal or other numbers of steps, "
                "ranks wait for each other for ever."
            )
        count = [0] * num_samples
        for index in (i for share in shares for step in share for i in step):
            assert 0 <= index < num_samples, f"{what}: there is no sample {index}."
            count[index] += 1
        twice, never = [i for i, c in enumerate(count) if c > 1], [i for i, c in enumerate(count) if not c]
        both = f"{len(twice)} samples come more than once and {len(never)} never"
        assert not (twice and never), f"{what}: {both}. Do all ranks cut the same order?"
        assert not twice, f"{what}: sample {twice[0]} and {len(twice) - 1} others come twice: nothing is repeated."
        assert not never, f"{what}: sample {never[0]} and {len(never) - 1} others never come: nothing is dropped."
        for step in range(steps):
            sizes = [len(share[step]) for share in shares]
            left = min(global_batch, num_samples - step * global_batch)
            assert sum(sizes) == left, f"{what}: step {step} has {sum(sizes)} samples over all ranks, wanted {left}."
            assert max(sizes) - min(sizes) <= 1, f"{what}: in step {step} the ranks have {sizes} samples: share evenly."


verdict_epoch([(12, 6, 2), (10, 4, 2)])
### BEGIN HIDDEN TESTS
verdict_epoch([(7, 3, 1), (10, 10, 4), (5, 2, 2), (23, 7, 3), (17, 4, 4), (9, 6, 4), (3, 8, 4)])
### END HIDDEN TESTS

# %% test="epoch_order" points=1
def probe_order(num_samples, global_batch, world):
    def order(epoch, seed):
        shares = [epoch_batches(num_samples, global_batch, rank, world, epoch, seed) for rank in range(world)]
        return [[list(map(int, share[step])) for share in shares] for step in range(len(shares[0]))]

    torch.manual_seed(1)
    first, second, other = order(0, 0), order(1, 0), order(0, 1)
    torch.manual_seed(2)
    again = order(0, 0)
    return {"first": first, "second": second, "other": other, "again": again, "random": torch.rand(3)}


def verdict_order(num_samples, global_batch, world):
    value = launch(probe_order, num_samples, global_batch, world, ranks=None, timeout=10).value
    in_order = [sorted(i for share in step for i in share) for step in value["first"]]
    unmixed = [list(range(k, min(k + global_batch, num_samples))) for k in range(0, num_samples, global_batch)]
    assert in_order != unmixed, "epoch_batches: the samples come in their stored order; shuffle them."
    assert value["first"] != value["second"], "epoch_batches: epochs 0 and 1 have the same order."
    assert value["first"] != value["other"], "epoch_batches: seeds 0 and 1 give the same order."
    told = "epoch_batches: the order depends on the rank's own random numbers; use a generator with the seed given."
    assert value["again"] == value["first"], told
    untouched = torch.rand(3, generator=torch.Generator().manual_seed(2))
    told = "epoch_batches changes the rank's own random numbers: dropout masks would be equal on all ranks."
    assert bool((value["random"] == untouched).all()), told


verdict_order(40, 8, 2)
### BEGIN HIDDEN TESTS
verdict_order(61, 9, 3)
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. The parameter server
#
# Before all-reduce, a *parameter server* (参数服务器) did it: workers send their gradients to one process, which
# averages them, updates the parameters and sends them back.
#
# ## parameter_server_step
#
# `parameter_server_step(model, lr)`, called on all ranks after backward on the workers. **Rank 0 is the
# server**; ranks 1 to p-1 are the workers (p is at least 2). All hold a `model` with the same parameters.
#
# 1. Each worker sends its gradients to the server. One that is None counts as zero.
# 2. The server updates its parameters by SGD with the **mean over the p-1 workers**: `w -= lr * g`. It has
#    seen no samples and has no gradients of its own.
# 3. The server sends the new parameters to each worker, which puts them into its model.
#
# Only trainable parameters travel. You may call `send`, `recv`, `isend` and `irecv`, no collective.
#
# *Example*, p = 3, lr = 0.5, `w = [4, 4]`; workers have `[1, 2]` and `[3, 6]`. The mean is `[2, 4]`:
# afterwards `w = [3, 2]` on all three ranks.
#
# *Target:* the server receives `(p-1) S` bytes and sends as much; a worker talks to the server only, S each
# way. *Size:* about 16 lines. (`torch.cat` of the flattened tensors makes it one message each way.)

# %% solution="parameter_server_step"
def parameter_server_step(model: nn.Module, lr: float) -> None:
    ### BEGIN SOLUTION
    rank, workers = dist.get_rank(), range(1, dist.get_world_size())
    params = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([p.detach().reshape(-1) for p in params])
    if rank == 0:
        total, part = torch.zeros_like(flat), torch.empty_like(flat)
        for worker in workers:
            dist.recv(part, worker)
            total += part
        flat -= lr * total / len(workers)
        for worker in workers:
            dist.send(flat, worker)
    else:
        dist.send(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params]), 0)
        dist.recv(flat, 0)
    with torch.no_grad():
        for p, part in zip(params, flat.split([p.numel() for p in params])):
            p.copy_(part.view_as(p))
    ### END SOLUTION


# %% test="server_values" points=1
def probe_server(plan, lr):
    """plan[step][rank]: branches that the worker's batch uses; the server computes nothing."""
    rank, seen = dist.get_rank(), []
    model = made(Net, 31)
    for step, used in enumerate(plan):
        model.zero_grad()
        if rank > 0:
            tokens, targets = batch(rank, step)
            cross_entropy(model(tokens, used[rank]), targets).backward()
        parameter_server_step(model, lr)
        seen.append(copies(dict(model.named_parameters())))
    return seen


def verdict_server(plan, ranks, lr=0.5, delay=None):
    run = launch(probe_server, plan, lr, ranks=ranks, timeout=10, delay=delay)
    model = made(Net, 31)
    for step, used in enumerate(plan):
        model.zero_grad()
        for rank in range(1, ranks):
            tokens, targets = batch(rank, step)
            (cross_entropy(model(tokens, used[rank]), targets) / (ranks - 1)).backward()
        start, moved = copies(dict(model.named_parameters())), grads(model)
        descend(model, lr)
        likes = {"what it was before the step: nothing new arrived": start}
        sentences = {
            f"the sum over the {ranks - 1} workers was taken, never divided": ranks - 1,
            f"divided by p = {ranks}, although only {ranks - 1} workers have gradients": (ranks - 1) / ranks,
            "the step went uphill: the sign": -1,
        }
        for why, k in sentences.items():
            step_of = {name: 0 * x if moved.get(name) is None else moved[name] for name, x in start.items()}
            likes[why] = {name: x - lr * k * step_of[name] for name, x in start.items()}
        right = copies(dict(model.named_parameters()))
        for rank, value in enumerate(run.values):
            who = "the server" if rank == 0 else f"worker {rank}"
            what = f"parameters of {who} after step {step} (p = {ranks})"
            check.agree(value[step], right, what, resembles=likes)


verdict_server([[(), (0, 1, 2), (0, 1, 2)]] * 2, 3)
### BEGIN HIDDEN TESTS
verdict_server([[(), (0, 2)]] * 2, 2)
verdict_server([[(), (0,), (), (1, 2)], [(), (2,), (2,), (0,)]], 4, lr=0.2, delay={1: 0.02})
### END HIDDEN TESTS

# %% test="server_traffic" points=1
def probe_server_bytes():
    model = made(Net, 32)
    if dist.get_rank() > 0:
        tokens, targets = batch(dist.get_rank(), 0)
        cross_entropy(model(tokens, (0, 1, 2)), targets).backward()
    parameter_server_step(model, 0.1)


def verdict_server_bytes(ranks):
    run = launch(probe_server_bytes, ranks=ranks, timeout=10)
    check.no_collectives(run.trace)
    size = nbytes(trainable(made(Net, 32)).values())
    for rank in range(ranks):
        peers = [0] if rank else list(range(1, ranks))
        others = sorted(run.trace.peers(rank) - set(peers))
        assert not others, f"Worker {rank} sent to rank {others[0]}; workers talk to the server, rank 0, only."
        want = size * len(peers)
        for verb, moved in (("sent", run.trace.bytes_sent(rank)), ("received", run.trace.bytes_received(rank))):
            who = "The server" if rank == 0 else f"Worker {rank}"
            assert moved == want, f"{who} {verb} {moved} bytes (p = {ranks}); it is {want}, {len(peers)} x S."


verdict_server_bytes(3)
### BEGIN HIDDEN TESTS
verdict_server_bytes(2)
verdict_server_bytes(4)
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. How far does it scale?
#
# ## step_seconds, best_world
#
# A whole batch costs one rank `compute` seconds of forward and backward, so p ranks cost `compute / p`
# each. `fixed` seconds of each step do not shrink (optimizer, launching kernels). The gradients' ring
# all-reduce takes
#
# $$M(p) = 2(p-1)\left(\alpha + \frac{n}{p}\,\beta\right)$$
#
# for n = `nbytes`. It can run while backward does: for the fraction `overlap` of the compute time (0 to 1)
# it costs nothing, and what does not fit under it comes on top.
#
# - `step_seconds(world, compute, fixed, nbytes, alpha, beta, overlap)` is the time of one step on `world`
#   ranks.
# - `best_world(most, compute, fixed, nbytes, alpha, beta, overlap)` is the world size from 1 to `most` with
#   the shortest step; of equally good ones the smallest.
#
# *Example*: compute 12, fixed 1, nbytes 4, alpha 0.5, beta 1, overlap 0.5. On 1 rank 13; on 2: M = 5, of
# which 0.5 x 6 = 3 are hidden, so 1 + 6 + 2 = 9; on 3: 1 + 4 + (22/3 - 2) = 10.33. The best world of up to
# 8 is 2.
#
# *Size:* 3 and 2 lines.

# %% solution="step_seconds"
def step_seconds(
    world: int, compute: float, fixed: float, nbytes: float, alpha: float, beta: float, overlap: float
) -> float:
    ### BEGIN SOLUTION
    message = 2 * (world - 1) * (alpha + nbytes / world * beta)
    return fixed + compute / world + max(0.0, message - overlap * compute / world)
    ### END SOLUTION


# %% solution="best_world"
def best_world(
    most: int, compute: float, fixed: float, nbytes: float, alpha: float, beta: float, overlap: float
) -> int:
    ### BEGIN SOLUTION
    return min(range(1, most + 1), key=lambda p: step_seconds(p, compute, fixed, nbytes, alpha, beta, overlap))
    ### END SOLUTION


# %% test="scaling_model" points=1
def probe_scaling(cases, most):
    times = [[float(step_seconds(p, *case)) for p in range(1, most + 1)] for case in cases]
    return {"times": times, "best": [int(best_world(most, *case)) for case in cases]}


def walked(p, compute, fixed, nbytes, alpha, beta, overlap):
    """The step as it happens: 2(p-1) messages one after the other beside what is left of the computing."""
    message = sum(alpha + nbytes / p * beta for _ in range(2 * (p - 1)))
    covered = compute / p * overlap
    return fixed + (compute / p - covered) + max(covered, message)


def verdict_scaling(cases, most):
    value = launch(probe_scaling, cases, most, ranks=None, timeout=10).value
    for case, times, best in zip(cases, value["times"], value["best"]):
        right = [walked(p, *case) for p in range(1, most + 1)]
        names = "compute {}, fixed {}, nbytes {}, alpha {}, beta {}, overlap {}".format(*case)
        for p, (got, want) in enumerate(zip(times, right), 1):
            check.number(got, want, f"step_seconds on {p} ranks ({names})", "s", rel=1e-9)
        wanted = min(p for p in range(1, most + 1) if walked(p, *case) <= min(right) * (1 + 1e-12))
        assert best == wanted, f"best_world(most = {most}, {names}) is {best}; another world size has a shorter step."


verdict_scaling([(12, 1, 4, 0.5, 1, 0.5), (12, 1, 4, 0.5, 1, 0)], 8)
### BEGIN HIDDEN TESTS
cases = [(0.4, 0.01, 5e8, 2e-5, 1e-10, overlap) for overlap in (0, 2 / 3, 1)]
cases += [(0.1, 0.0, 4e6, 1e-3, 1e-9, 0.5), (1.0, 0.2, 0, 0, 0, 0.5), (2.0, 0.0, 1e3, 0.3, 0.0, 1)]
verdict_scaling(cases, 64)
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# Not graded. The same sleeping ranks, now with a global batch of 12 samples of 6 ms each, over 1, 2, 3 and
# 4 ranks. First the cell times a short and a long all-reduce on four ranks and solves for alpha and beta,
# then it predicts with your `step_seconds`, up to 32 ranks, and lays the measured steps beside it. *Before
# you run it:* on how many ranks is a step half as long as on one? And where does one rank more no longer
# help?
#
# The ranks of this machine share its cores, so its beta, fitted on four ranks, is that of a crowded link.

# %%
SAMPLES, SAMPLE_SECONDS, WIDTH, LAYERS = 12, 6e-3, 256, 8
GRADIENT = LAYERS * (WIDTH + 1) * WIDTH  # elements


def measure_message():
    return [min(time_on_ranks(dist.all_reduce, torch.ones(numel), tries=15)) for numel in (4, GRADIENT)]


def measure_scaling():
    share = SAMPLES / dist.get_world_size() * SAMPLE_SECONDS
    dp = BucketedDataParallel(made(lambda: Chain([WIDTH] * (LAYERS + 1)), 1), 2**19)
    x = torch.ones(1, WIDTH)

    def step():
        sleep(share / 3)  # forward takes a third of the time, backward two
        slow_step(dp, x, share * 2 / 3 / LAYERS)

    return min(time_on_ranks(step, tries=9)), min(time_on_ranks(slow_step, dp, x, 0.0, tries=9))


def plot_scaling():
    compute, worlds, many = SAMPLES * SAMPLE_SECONDS, [1, 2, 3, 4], range(1, 33)
    short, long = launch(measure_message, ranks=4, trace=False).values[0]
    alpha, beta = short / 6, max(long - short, 0) / (6 * GRADIENT * 4 / 4)
    seen = [launch(measure_scaling, ranks=p, trace=False).values[0] for p in worlds]
    fixed = seen[0][1]
    print(f"alpha {1e6 * alpha:.0f} µs, beta {beta:.1e} s/byte, fixed {1e3 * fixed:.1f} ms")
    figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
    ax.plot([1, 32], [1, 32], ":", color="gray", label="ideal")
    for overlap, name in ((0, "no overlap"), (2 / 3, "overlap in backward")):
        case = (compute, fixed, GRADIENT * 4, alpha, beta, overlap)
        speeds = [step_seconds(1, *case) / step_seconds(p, *case) for p in many]
        ax.plot(many, speeds, "--", label=f"predicted, {name}")
        print(f"predicted, {name}: best on {best_world(32, *case)} ranks")
    speeds = [seen[0][0] / seconds for seconds, _ in seen]
    ax.plot(worlds, speeds, "o", color="black", label="measured")
    ax.set(xlabel="ranks", ylabel="times as fast as 1 rank", ylim=(0, 16))
    ax.legend(frameon=False)
    plt.show()
    for p, (seconds, _), fast in zip(worlds, seen, speeds):
        print(f"measured on {p} ranks: {1e3 * seconds:5.1f} ms a step, {fast:.2f} times as fast as one")


plot_scaling()

# %% [markdown]
# ## question_numbers
#
# Return a dictionary of numbers. (1 GB is 10^9 bytes; ring all-reduce; no gradient accumulation unless
# named.)
#
# - `"global_batch"`: 8 ranks, 4 samples a rank and micro-batch, 16 micro-batches accumulated: samples in
#   one optimizer step.
# - `"lr_equivalent"`: SGD with learning rate 0.1 on 8 ranks, and by mistake the average is taken twice.
#   With which learning rate would the right gradient give the same step?
# - `"state_one"`, `"state_all"`: a model of 7 x 10^9 parameters keeps 16 bytes a parameter (weights,
#   gradients, optimizer). In plain data parallelism on 8 cards: GB on one card, and on all cards together?
# - `"ring_sent"`: its gradients are 2 bytes a parameter. GB that each of the 8 ranks **sends** in one
#   all-reduce?
# - `"server_sent"`: with a parameter server and 8 workers instead, parameters 2 bytes each as well: GB that
#   the server **sends** in one step?
# - `"collectives"`: 48 parameters of equal size, a bucket holds 5 of them: all-reduces in one step of 16
#   micro-batches, with `no_sync` where it belongs?

# %% solution="question_numbers"
def question_numbers() -> dict[str, float]:
    ### BEGIN SOLUTION
    return {
        "global_batch": 512,
        "lr_equivalent": 0.0125,
        "state_one": 112,
        "state_all": 896,
        "ring_sent": 24.5,
        "server_sent": 112,
        "collectives": 10,
    }
    ### END SOLUTION


# %% test="question_numbers_values" points=1
answer = check.answer(launch(lambda: question_numbers(), ranks=None, timeout=10).value, "question_numbers")
for key in ("global_batch", "lr_equivalent", "state_one", "state_all", "ring_sent", "server_sent", "collectives"):
    check.has_number(answer, key, "question_numbers")
### BEGIN HIDDEN TESTS
wanted = {"global_batch": 8 * 4 * 16, "lr_equivalent": 0.1 / 8, "state_one": 7 * 16, "state_all": 7 * 16 * 8}
wanted |= {"ring_sent": 2 * 7 / 8 * 14, "server_sent": 8 * 14, "collectives": -(-48 // 5)}
rounded = {key: round(float(answer[key]), 6) for key in wanted}
check.answers_agree(rounded, {key: round(float(value), 6) for key, value in wanted.items()}, "question_numbers")
### END HIDDEN TESTS

# %% [markdown]
# ## question_causes
#
# Return a dictionary with one letter, as a string, for each key.
#
# `"full_copy"`: why does every card hold the whole model in data parallelism?
#
# - A: all-reduce works on whole models only.
# - B: each card trains its own model, and the best one is kept.
# - C: so that training goes on when a card fails.
# - D: the batch is what is divided; each card runs all layers forward and backward on its own samples, and
#   updates by itself.
#
# `"copy_costs"`: what does this cost?
#
# - A: memory: state is there p times over. Traffic: the gradients are all-reduced in each step.
# - B: memory: state is there p times over. No traffic: the copies are equal anyway.
# - C: no memory: equal copies share it. Traffic: the parameters are broadcast in each step.
# - D: memory: each card needs 1/p of the state. Traffic: layers are gathered before use.
#
# `"too_large"`: the state no longer fits onto one card. What helps?
#
# - A: more data-parallel cards.
# - B: a smaller batch on each card, as the state shrinks with it.
# - C: sharding the state (ZeRO, FSDP) or dividing the model (pipeline, tensor parallel).
# - D: gradient accumulation.
#
# `"small_buckets"`, `"large_buckets"`: what is lost with buckets that are far too small, and far too large?
#
# - A: values: sums of many numbers are rounded more.
# - B: the start of a collective is paid many times.
# - C: the first all-reduce starts late, and little is left of backward to hide it.
# - D: bytes: more of them must be sent in all.
#
# `"sum_with_adamw"`: gradients were summed over 8 ranks and never divided, and the loss curve with AdamW
# looks just right. Why?
#
# - A: AdamW's step hardly changes when all gradients are multiplied by one factor.
# - B: AdamW divides by the world size itself.
# - C: the loss is averaged over ranks, so the factor cancels in it.
# - D: the curve would look right with SGD too.
#
# `"average_weights"`: somebody lets each rank step with its own gradient and then averages the
# **parameters**. From equal starts, when is the result the same as with averaged gradients?
#
# - A: always.
# - B: with plain SGD; not with AdamW.
# - C: with AdamW; not with plain SGD.
# - D: never.
#
# `"server_limit"`: what limits a parameter server as workers are added?
#
# - A: each worker sends more and more bytes.
# - B: the workers' gradients no longer fit together.
# - C: nothing, it scales as all-reduce does.
# - D: the server's link: its bytes grow with the number of workers, an all-reduce's bytes per rank hardly
#   do.

# %% solution="question_causes"
def question_causes() -> dict[str, str]:
    ### BEGIN SOLUTION
    return {
        "full_copy": "D",
        "copy_costs": "A",
        "too_large": "C",
        "small_buckets": "B",
        "large_buckets": "C",
        "sum_with_adamw": "A",
        "average_weights": "B",
        "server_limit": "D",
    }
    ### END SOLUTION


# %% test="question_causes_letters" points=1
answer = check.answer(launch(lambda: question_causes(), ranks=None, timeout=10).value, "question_causes")
choices = ("full_copy", "copy_costs", "too_large", "small_buckets", "large_buckets")
for key in (*choices, "sum_with_adamw", "average_weights", "server_limit"):
    check.has_letter(answer, key, "ABCD", "question_causes")
### BEGIN HIDDEN TESTS
wanted = {"full_copy": "D", "copy_costs": "A", "too_large": "C", "small_buckets": "B", "large_buckets": "C"}
wanted |= {"sum_with_adamw": "A", "average_weights": "B", "server_limit": "D"}
check.answers_agree(answer, wanted, "question_causes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - Replicas that start equal and get equal gradients stay equal. Buffers and frozen weights belong to the
#   start.
# - Sum, and divide **once**. SGD shows a wrong factor; Adam hides it.
# - Buckets from the last layer on, started from hooks: the wire works while backward does. The price of a
#   few large messages is a late start, of many small ones their latency.
# - Ranks must start the same collectives in the same order, whatever their data made them compute.
# - Count tokens, not micro-batches; and send once a step.
# - A server carries (p-1) S each way; in an all-reduce every rank carries 2(p-1)/p S.
