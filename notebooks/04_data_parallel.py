# %% [markdown]
# # 04 · Data parallel
#
# **You will build** data-parallel training from `all_reduce` alone: replicas that start equal and stay
# equal, gradients that travel while backward still computes, accumulation, a parameter server; and you hold
# each of them to torch's `DistributedDataParallel`, in values and in bytes.
#
# **You need** notebooks [01](01_one_training_step.ipynb) (a training step over ranks),
# [02](02_collectives.ipynb) (all-reduce) and [03](03_cost_model.ipynb) (α and β).
#
# **Time**: about 70 minutes to read and try; 35 seconds to run.
#
# In **data parallelism** (数据并行, DP) every rank holds the whole model, a **replica** (副本), and works on its
# own part of the batch. One step on p ranks:
#
# $$g=\frac{1}{p}\sum_{r=0}^{p-1}g_r,\qquad \theta\leftarrow\theta-\eta\, g$$
#
# where $g_r$ is the gradient of rank r's own loss. Equal parameters and equal gradients give equal
# parameters. Nothing else keeps replicas together.

# %%
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from time import monotonic, sleep

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from utils import LaunchError, launch
from utils.measure import time_on_ranks
from utils.models import Transformer, TransformerConfig, batches
from utils.pictures import draw_before_after, marks, rank_color, size_label, time_label

torch.set_num_threads(1)  # as the ranks do: a small model gains nothing from more
CONFIG = TransformerConfig(hidden=32, layers=2, heads=2, max_len=32)
print(f"a Transformer of {CONFIG.num_parameters()} parameters, {size_label(4 * CONFIG.num_parameters())} in float32")

# %% [markdown]
# ## Start equal
#
# Ranks are separate processes with random numbers of their own. Each builds its model.
#
# **Predict.** Without a broadcast, all ranks then take 5 steps with exactly the same averaged gradient. Do
# the replicas come closer to each other, drift apart, or keep their distance?

# %%
def sgd(model, lr):
    """w -= lr * grad, for every parameter; then forget the gradients."""
    with torch.no_grad():
        for p in model.parameters():
            p -= lr * p.grad
            p.grad = None


def own_part(tokens, targets):
    """This rank's rows of a batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    return tokens.tensor_split(world)[rank], targets.tensor_split(world)[rank]


def distance_from_rank_0(model):
    """The largest difference of any parameter from rank 0's."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    theirs = flat.clone()
    dist.broadcast(theirs, 0)
    return (flat - theirs).abs().max().item()


def replicas_over_time(equal_start):
    model = Transformer(CONFIG)
    if equal_start:
        for p in model.parameters():
            dist.broadcast(p.data, 0)
    distances = [distance_from_rank_0(model)]
    for tokens, targets in batches(8, 32, steps=5):
        model.loss(*own_part(tokens, targets)).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        sgd(model, lr=0.5)
        distances.append(distance_from_rank_0(model))
    return distances


for equal_start in (False, True):
    run = launch(replicas_over_time, equal_start, ranks=2)
    shown = "  ".join(f"{distance:.2f}" for distance in run.values[1])
    print(f"broadcast first: {equal_start!s:>5}   rank 1's distance from rank 0 after each step: {shown}")

# %% [markdown]
# They keep it: equal updates change nothing in a difference. (The gradients were averaged over two
# *different* models, so each model took steps that belong to neither.) The loss falls all the same, and
# that is what makes this mistake so hard to see. So: **broadcast once, at the start**. A real model has
# more to broadcast than trainable parameters; lab 02 asks what.
#
# ## The step
#
# What the all-reduce does, with marked numbers as in notebook 02: rank 0 holds 1, 2, 3, 4, rank 1 holds 10,
# 20, 30, 40, and so on. Here they stand for gradients.
#
# **Predict.** What does each of four ranks hold afterwards? And how many bytes did each send, in units of
# the gradient's size S?

# %%
def reduce_marks():
    g = marks(dist.get_rank(), 4)
    before = g.clone()
    dist.all_reduce(g)
    return before, g


run = launch(reduce_marks, ranks=4)
draw_before_after(*zip(*run.values, strict=True), title="gradients, all-reduce (sum)")
plt.show()
print(f"each rank sent {run.trace.bytes_sent(0) / (4 * 8):.2f} S")

# %% [markdown]
# 2 (p-1)/p = 1.5 times S, as in the ring. What is missing for the mean is the division by p.
#
# Now the real thing: a Transformer on real text (Python's own standard library), once in one process on the
# whole batch, once on four ranks with a quarter each, once on four ranks that never talk.
#
# **Predict.** Which of the three loss curves coincide?

# %%
STEPS, LR = 30, 0.2


def train_on_ranks(average):
    torch.manual_seed(0)  # the same start everywhere, in place of a broadcast
    model, losses = Transformer(CONFIG), []
    for tokens, targets in batches(16, 32, steps=STEPS):
        loss = model.loss(*own_part(tokens, targets))
        loss.backward()
        if average:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        sgd(model, LR)
        mean = loss.detach()
        dist.all_reduce(mean)  # only to print it
        losses.append(mean.item() / dist.get_world_size())
    return losses, distance_from_rank_0(model)


one = launch(train_on_ranks, True, ranks=1).values[0][0]
together = launch(train_on_ranks, True, ranks=4)
apart = launch(train_on_ranks, False, ranks=4)
figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
ax.plot(one, color="black", linewidth=4, alpha=0.3, label="one process, whole batch")
ax.plot(together.values[0][0], color=rank_color(0), label="4 ranks, gradients averaged")
ax.plot(apart.values[0][0], "--", color=rank_color(1), label="4 ranks that never talk")
ax.set(xlabel="step", ylabel="loss (nats a byte)")
ax.legend(frameon=False)
plt.show()
gap = max(abs(a - b) for a, b in zip(one, together.values[0][0], strict=True))
print(f"averaged: the loss differs from one process by at most {gap:.1e}; distance {together.values[3][1]:.1e}")
print(f"never talking: distance of rank 3 from rank 0 after {STEPS} steps: {apart.values[3][1]:.2f}")

# %% [markdown]
# Data parallelism is not an approximation: up to rounding it *is* the one process with the whole batch.
# Four ranks that never talk train four models; their curve looks just as good, and the distance tells.
#
# With b samples on each of p ranks the **global batch** (全局批大小) is p·b.
#
# ## Divide once
#
# The all-reduce adds; someone has to divide. Two common mistakes: nobody does, or two do (the loss is
# scaled *and* the framework averages).
#
# **Predict.** With p = 4: by which factor is the step wrong in each case? And with Adam instead of SGD,
# which of the three final losses stand out?

# %%
def final_loss(factor, optimizer_name):
    """Training in one process, all gradients multiplied by `factor` (exactly what the mistakes do)."""
    torch.manual_seed(0)
    model = Transformer(CONFIG)
    params = list(model.parameters())
    mean, square = ([torch.zeros_like(p) for p in params] for _ in range(2))
    for step, (tokens, targets) in enumerate(batches(16, 32, steps=STEPS), 1):
        loss = model.loss(tokens, targets)
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, g, m, v in zip(params, grads, mean, square, strict=True):
                g = factor * g
                if optimizer_name == "SGD":
                    p -= LR * g
                else:  # Adam with its usual betas
                    m.lerp_(g, 0.1)
                    v.lerp_(g * g, 0.001)
                    p -= 3e-3 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    return loss.item()


print(f"{'':>22}  {'SGD':>7}  {'Adam':>7}   loss after {STEPS} steps")
for name, factor in (("summed, never divided", 4), ("divided once", 1), ("divided twice", 1 / 4)):
    print(f"{name:>22}  {final_loss(factor, 'SGD'):7.4f}  {final_loss(factor, 'Adam'):7.4f}")

# %% [markdown]
# With SGD a factor of p in the gradient is a factor of p in the learning rate: visible at once. Adam
# divides the gradient by its own size, so a constant factor hardly changes anything, until something else
# looks at the gradient's size: clipping, weight decay coupled to it, a loss scale. **Test gradients under
# SGD, or look at the gradients themselves.**
#
# ## Average the weights instead?
#
# A tempting shortcut: let each rank take its own step with its own gradient and average the *parameters*.
#
# **Predict.** From equal starts, after one step: the same as averaging gradients? With plain SGD? With
# Adam?

# %%
def adam_step(weights, grads, lr=3e-3):
    """The first step of Adam: both averages are made of this gradient alone."""
    return [w - lr * g / (g.abs() + 1e-8) for w, g in zip(weights, grads, strict=True)]


def sgd_step(weights, grads, lr=0.5):
    return [w - lr * g for w, g in zip(weights, grads, strict=True)]


def averaged(tensors):
    tensors = [t.clone() for t in tensors]
    for t in tensors:
        dist.all_reduce(t)
        t /= dist.get_world_size()
    return tensors


def both_ways():
    torch.manual_seed(0)
    model = Transformer(CONFIG)
    weights = [p.detach() for p in model.parameters()]
    tokens, targets = own_part(*next(batches(16, 32, steps=1)))
    grads = torch.autograd.grad(model.loss(tokens, targets), list(model.parameters()))
    gaps = {}
    for step in (sgd_step, adam_step):
        first = step(weights, averaged(grads))
        then = averaged(step(weights, grads))
        gaps[step.__name__] = max((a - b).abs().max().item() for a, b in zip(first, then, strict=True))
    return gaps


for name, gap in launch(both_ways, ranks=4).values[0].items():
    print(f"{name:>9}: largest difference between averaging gradients and averaging weights: {gap:.1e}")

# %% [markdown]
# SGD's step is linear in the gradient, so the order does not matter; Adam's is not. (Averaging weights
# every few steps is a method of its own, *local SGD*; it is not this one.)
#
# ## Many messages or one
#
# The Transformer has a tensor for each weight and bias. One all-reduce each, or all in one flat tensor?
#
# **Predict.** From notebook 03: what does a message cost that has almost no bytes, and how many of them are
# here?

# %%
def one_each_or_flat():
    torch.manual_seed(0)
    grads = [torch.randn_like(p) for p in Transformer(CONFIG).parameters()]
    flat = torch.cat([g.flatten() for g in grads])

    def one_each():
        for g in grads:
            dist.all_reduce(g)

    return len(grads), min(time_on_ranks(one_each, tries=9)), min(time_on_ranks(dist.all_reduce, flat, tries=9))


count, each, flat = launch(one_each_or_flat, ranks=2, trace=False).values[0]
print(f"{count} all-reduces: {time_label(each)}; one with the same bytes: {time_label(flat)}")

# %% [markdown]
# So gradients are put together into **buckets** (梯度桶). But one bucket for everything has a price of its
# own.
#
# ## While backward runs
#
# Backward makes gradients from the last layer to the first. The last layer's gradient is complete while the
# first layers still compute, so it could travel in the meantime: **overlap** of communication and
# computation (通信计算重叠).
#
# To see this on a machine whose ranks share a few cores we use two props. A layer "computes" by sleeping 4
# ms in backward, and a `Wire` makes each all-reduce take the time that notebook 03's model gives it,
# 2(p-1)(α + nβ/p), one after the other, in a thread of its own.

# %%
ALPHA, BETA, LAYERS, LAYER_SECONDS, WIDTH = 0.25e-3, 1e-7, 8, 4e-3, 64
LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)


def message_seconds(world, nbytes):
    return 2 * (world - 1) * (ALPHA + nbytes / world * BETA)


class Wire:
    """All-reduces in order, in the background; notes when each began and ended."""

    def __init__(self):
        self.thread, self.spans = ThreadPoolExecutor(1), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.shutdown()

    def all_reduce(self, x):
        return self.thread.submit(self.carry, x)

    def carry(self, x):
        start = monotonic()
        sleep(message_seconds(dist.get_world_size(), x.nbytes))
        dist.all_reduce(x)
        self.spans.append((start, monotonic()))


class Slow(torch.autograd.Function):
    """Costs time on the way back."""

    @staticmethod
    def forward(ctx, x, seconds, spans):
        ctx.seconds, ctx.spans = seconds, spans
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        start = monotonic()
        sleep(ctx.seconds)
        ctx.spans.append((start, monotonic()))
        return grad, None, None


def make_layers():
    torch.manual_seed(0)
    return nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))


def backward(layers, seconds, spans):
    x = torch.ones(2, WIDTH) + dist.get_rank()
    for layer in layers:
        x = Slow.apply(torch.tanh(layer(x)), seconds, spans)
    x.square().mean().backward()


def step_with_buckets(layers, per_bucket, wire, seconds=LAYER_SECONDS, spans=None, wait_for_backward=False):
    """One step; a bucket holds `per_bucket` parameters and starts when the last of them has its gradient."""
    params = list(layers.parameters())[::-1]  # weight and bias of the last layer come first
    params = [p for pair in zip(params[1::2], params[::2], strict=True) for p in pair]
    groups = [params[i : i + per_bucket] for i in range(0, len(params), per_bucket)]
    waiting, left, under_way = {p: k for k, g in enumerate(groups) for p in g}, [len(g) for g in groups], []

    def start(k):
        flat = torch.cat([p.grad.flatten() for p in groups[k]])
        under_way.append((groups[k], flat, wire.all_reduce(flat)))

    def ready(p):
        left[waiting[p]] -= 1
        if left[waiting[p]] == 0:
            start(waiting[p])

    hooks = [] if wait_for_backward else [p.register_post_accumulate_grad_hook(ready) for p in params]
    for p in params:
        p.grad = None
    backward(layers, seconds, [] if spans is None else spans)
    if wait_for_backward:
        for k in range(len(groups)):
            start(k)
    for group, flat, work in under_way:
        work.result()
        for p, part in zip(group, flat.split([p.numel() for p in group]), strict=True):
            p.grad = part.view_as(p) / dist.get_world_size()
    for hook in hooks:
        hook.remove()


def spans_of_a_step(per_bucket, wait_for_backward):
    layers, compute = make_layers(), []
    with Wire() as wire:
        step_with_buckets(layers, per_bucket, wire, 0.0)  # connections are opened here
        wire.spans.clear()
        dist.barrier()
        zero = monotonic()
        step_with_buckets(layers, per_bucket, wire, spans=compute, wait_for_backward=wait_for_backward)
    return [[(1e3 * (a - zero), 1e3 * (b - zero)) for a, b in spans] for spans in (compute, wire.spans)]


def draw_step(ax, values, title):
    for rank, (compute, wire) in enumerate(values):
        for row, spans, color in ((2 * rank, compute, "#BBBBBB"), (2 * rank + 0.8, wire, rank_color(rank))):
            for start, end in spans:
                ax.barh(row, end - start, left=start, height=0.7, color=color, edgecolor="white")
    labels = [f"rank {rank}: {what}" for rank in range(len(values)) for what in ("backward", "all-reduce")]
    ax.set_yticks([2 * (k // 2) + 0.8 * (k % 2) for k in range(len(labels))], labels)
    ax.invert_yaxis()
    ax.set(xlabel="ms since the step began", xlim=(0, None))
    ax.set_title(title, loc="left", fontsize=10)


# %% [markdown]
# **Predict.** 8 layers of 4 ms; one all-reduce for each layer takes 4 ms too (on 4 ranks). How long is a
# step that starts them after backward? How long one that starts each as soon as its layer is done?

# %%
cases = {"after backward": True, "from hooks, while backward runs": False}
figure, axes = plt.subplots(2, 1, figsize=(9, 4.4), layout="constrained", sharex=True)
for ax, (name, wait) in zip(axes, cases.items(), strict=True):
    run = launch(spans_of_a_step, 2, wait, ranks=4, trace=False)
    draw_step(ax, run.values[:2], f"{name} (two of four ranks)")
    end = max(span[1] for spans in run.values[0] for span in spans)
    hidden = sum(b <= run.values[0][0][-1][1] for _, b in run.values[0][1])
    print(f"{name}: {end:.0f} ms; {hidden} of {LAYERS} all-reduces were over before backward was")
plt.show()

# %% [markdown]
# The hooks hide all but the last one: 8 x 4 + 4 = 36 ms against 8 x 4 + 8 x 4 = 64. That last bucket can
# never be hidden: it is complete when backward is.
#
# ## How large is a bucket?
#
# Small buckets start early and pay α each time; large ones pay it once and start late. A few lines predict
# it:
#
# **Predict.** Which size wins here: one parameter, one layer, two, four, all eight? Read the function, then
# guess.

# %%
def predicted_step(world, per_bucket):
    """Backward and the wire, side by side: a message starts when its bucket is complete and the wire is free."""
    sizes = [4 * WIDTH * WIDTH, 4 * WIDTH] * LAYERS  # weight and bias
    free = 0.0
    for first in range(0, len(sizes), per_bucket):
        last = min(first + per_bucket, len(sizes)) - 1
        complete = (last // 2 + 1) * LAYER_SECONDS  # both parameters of a layer come together
        free = max(free, complete) + message_seconds(world, sum(sizes[first : last + 1]))
    return free


def measured_steps(choices):
    layers = make_layers()
    with Wire() as wire:
        return [min(time_on_ranks(step_with_buckets, layers, n, wire, warmup=1, tries=4)) for n in choices]


CHOICES = {1: "1 parameter", 2: "1 layer", 4: "2 layers", 8: "4 layers", 16: "8 layers"}
measured = launch(measured_steps, list(CHOICES), ranks=4, trace=False).values[0]
figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
places = range(len(CHOICES))
ax.plot(places, [1e3 * predicted_step(4, n) for n in CHOICES], "--", color=rank_color(1), label="predicted")
ax.plot(places, [1e3 * seconds for seconds in measured], "o", color="black", label="measured")
ax.axhline(1e3 * LAYERS * LAYER_SECONDS, color="gray", linestyle=":", label="backward alone")
ax.set_xticks(list(places), CHOICES.values())
ax.set(xlabel="a bucket holds", ylabel="ms a step", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
for n, seconds in zip(CHOICES, measured, strict=True):
    print(f"{CHOICES[n]:>12}: predicted {1e3 * predicted_step(4, n):4.0f} ms, measured {1e3 * seconds:4.0f} ms")

# %% [markdown]
# Too small: α is paid again and again. Too large: the first message waits for its bucket. The best size
# depends on α, β and the speed of backward; torch's default is 25 MiB (and 1 MiB for the first bucket, so
# that it starts early).
#
# ## What torch does
#
# `DistributedDataParallel` (DDP) is this with all cases thought of. The journal sees what its C++ core
# sends.
#
# **Predict.** For the Transformer above with buckets of 32 KiB: how many all-reduces a step, and how many
# bytes in all compared with one flat all-reduce?

# %%
def grads_of(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def loss_of(ddp, tokens, targets):
    return cross_entropy(ddp(tokens).flatten(0, 1), targets.flatten())


def beside_ddp(bucket_kib):
    torch.manual_seed(0)
    ours = Transformer(CONFIG)
    torch.manual_seed(0)
    theirs = DistributedDataParallel(Transformer(CONFIG), bucket_cap_mb=bucket_kib / 1024)
    gaps = []
    for tokens, targets in batches(8, 32, steps=2):
        part = own_part(tokens, targets)
        ours.zero_grad()
        theirs.zero_grad()
        dist.barrier()
        loss_of(theirs, *part).backward()
        dist.barrier()
        ours.loss(*part).backward()
        flat = grads_of(ours)
        dist.all_reduce(flat)
        gaps.append((flat / dist.get_world_size() - grads_of(theirs.module)).abs().max().item())
    return gaps


def between_barriers(events):
    """The events of one rank, cut at its barriers."""
    parts = [[]]
    for event in events:
        parts.append([]) if event.op == "barrier" else parts[-1].append(event)
    return parts


run = launch(beside_ddp, 32, ranks=2)
made, first, ours, second, _ = between_barriers(run.trace.of(0))
print("largest difference of any gradient:", *(f"{gap:.1e}" for gap in run.values[0]))
for name, events in (("made", made), ("step 1", first), ("step 2", second)):
    print(f"{name}:", ", ".join(f"{e.op} of {size_label(e.nbytes)}" for e in events))
sent = sum(e.sent for e in second if e.op == "all_reduce")
print(f"rank 0 sent in all-reduces: DDP in step 2 {sent} bytes, one flat all-reduce {ours[0].sent} bytes")

# %% [markdown]
# The same values, the same bytes. It broadcasts when it is made. In the first step everything is in one
# bucket, while DDP notes in which order gradients arrive; then it makes its buckets in that order (a small
# broadcast keeps the ranks of one mind), the last layers first. A parameter larger than a bucket is alone
# in its own.
#
# ## Accumulate, then send
#
# When memory does not hold the batch, a rank works through k **micro-batches** (微批次), adds up their
# gradients and steps once: **gradient accumulation** (梯度累积). The global batch is then p·k·b. Gradients need
# to travel once a step, so DDP has `no_sync()`: inside it, backward only adds up.
#
# **Predict.** Four micro-batches: how many times do gradients travel with `no_sync` around the first three,
# and without it? Are the gradients equal?

# %%
def accumulate_twice():
    results = []
    for quiet in (True, False):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Transformer(CONFIG))
        dist.barrier()
        for k, part in enumerate(batches(4, 32, steps=4, seed=dist.get_rank())):
            with ddp.no_sync() if quiet and k < 3 else nullcontext():
                (loss_of(ddp, *part) / 4).backward()
        dist.barrier()
        results.append(grads_of(ddp.module))
    return results


run = launch(accumulate_twice, ranks=2)
_, quiet, _, loud, _ = between_barriers(run.trace.of(0))
for name, events in (("with no_sync", quiet), ("without", loud)):
    reduces = [e for e in events if e.op == "all_reduce"]
    print(f"{name}: {len(reduces)} all-reduces, {size_label(sum(e.sent for e in reduces))} sent by rank 0")
print(f"largest difference: {(run.values[0][0] - run.values[0][1]).abs().max().item():.1e}")

# %% [markdown]
# The values agree, so no test of values sees the difference: k times the traffic.
#
# There is a trap in the division by k. A language batch is a mean over *tokens*, and micro-batches may
# differ in how many tokens count (padding is left out). Two micro-batches, one with a single token of loss
# 2.0, one with seven tokens of loss 0.5 each:
#
# **Predict.** The mean over the eight tokens; and the mean of the two means.

# %%
counts, means = torch.tensor([1.0, 7.0]), torch.tensor([2.0, 0.5])
print(f"mean over tokens {(counts * means).sum() / counts.sum():.4f}, mean of means {means.mean():.4f}")

# %% [markdown]
# In the second, the lonely token weighs seven times as much as any other. The gradient is wrong by the same
# weights. This bug lived in several well-known training frameworks until 2024. Lab 02 asks for the right
# version, over micro-batches *and* ranks.
#
# ## A layer that some ranks do not use
#
# Two branches, of which a batch may use one or both. What is not used has `.grad = None`, so somebody
# writes "average whatever has a gradient".
#
# **Predict.** Rank 0's batch uses both branches, rank 1's only the second. What happens? (Both branches
# have the same sizes.)

# %%
class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, x, used):
        return sum(self.branches[k](x) for k in used)


USED = {0: (0, 1), 1: (1,)}


def average_what_is_there():
    torch.manual_seed(0)
    model = TwoBranches()
    model(torch.ones(1, 3), USED[dist.get_rank()]).sum().backward()
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
    dist.barrier()


def find_unused():
    torch.manual_seed(0)
    ddp = DistributedDataParallel(TwoBranches(), find_unused_parameters=True)
    dist.barrier()
    ddp(torch.ones(1, 3), USED[dist.get_rank()]).sum().backward()
    dist.barrier()
    return [p.grad.sum().item() for p in ddp.module.parameters()]


try:
    launch(average_what_is_there, ranks=2, show=False)
except LaunchError as error:
    print(error)
run = launch(find_unused, ranks=2)
print("\nDDP with find_unused_parameters=True, sums of the gradients on ranks 0 and 1:", *run.values)
print("in the step:", ", ".join(f"{e.op} of {e.numel} {e.dtype}" for e in between_barriers(run.trace.of(0))[1]))

# %% [markdown]
# Rank 0's first branch met rank 1's second: the sizes agree, so gloo added them up. Only because rank 0
# then waits for two more all-reduces was anything noticed at all. With `find_unused_parameters=True` DDP
# lets what a rank did not use count as zero (the first branch has half of rank 0's gradient), at the price
# of a walk over the graph and a small all-reduce that tells who used what. **All ranks must start the same
# collectives in the same order**, whatever their data made them compute.
#
# ## Before all-reduce: the parameter server
#
# Workers send gradients to one **parameter server** (参数服务器), which averages, updates and sends parameters
# back. One tensor here; lab 02 does it for a model.
#
# **Predict.** With 2, 4 and 8 workers: how many bytes pass through the server in a step, in units of S? How
# many through the busiest rank of an all-reduce?

# %%
def server_step(numel):
    """Rank 0 serves: it takes in all gradients and sends out the new parameters."""
    x, rank, workers = torch.ones(numel), dist.get_rank(), range(1, dist.get_world_size())
    if rank:
        dist.send(x, 0)
        dist.recv(x, 0)
        return
    parts = [torch.empty_like(x) for _ in workers]
    for part, worker in zip(parts, workers, strict=True):
        dist.recv(part, worker)
    x -= 0.1 * sum(parts) / len(parts)
    for worker in workers:
        dist.send(x, worker)


def busiest(trace, ranks, nbytes):
    return max(trace.bytes_sent(r) + trace.bytes_received(r) for r in range(ranks)) / nbytes


WORKERS, NUMEL = [1, 2, 4, 8], 840
through = {"parameter server": [], "all-reduce": []}
for workers in WORKERS:
    run = launch(server_step, NUMEL, ranks=workers + 1)
    through["parameter server"].append(busiest(run.trace, workers + 1, 4 * NUMEL))
    run = launch(lambda: dist.all_reduce(torch.ones(NUMEL)), ranks=workers)
    through["all-reduce"].append(busiest(run.trace, workers, 4 * NUMEL))
figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
for k, (name, times) in enumerate(through.items()):
    ax.plot(WORKERS, times, "o-", color=rank_color(k), label=name)
    print(f"{name:>16}: " + ", ".join(f"{w} workers {t:.2f} S" for w, t in zip(WORKERS, times, strict=True)))
ax.set(xlabel="workers", ylabel="bytes in and out of the busiest rank, in S", xticks=WORKERS)
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# The server carries 2 S for *each* worker; in an all-reduce no rank ever carries more than 4 S, in and out.
# And if the server dies, everything does.
#
# ## How far does it scale?
#
# The lecture's estimate: a step takes the computing time C/p, which shrinks, and the all-reduce time M,
# which does not. 16 samples of 6 ms, the wire from above.
#
# **Predict.** On which number of ranks is the step half as long as on one? Does doubling from 8 to 16 help?

# %%
SAMPLES, SAMPLE_SECONDS = 16, 6e-3
GRADIENT_BYTES = LAYERS * LAYER_BYTES


def predicted(world, overlap):
    """Forward is a third of C/p, backward two; with overlap, each layer's all-reduce starts inside backward."""
    compute = SAMPLES * SAMPLE_SECONDS / world
    if not overlap:
        return compute + message_seconds(world, GRADIENT_BYTES)
    done = compute / 3
    free = 0.0
    for _ in range(LAYERS):
        done += compute * 2 / 3 / LAYERS
        free = max(free, done) + message_seconds(world, LAYER_BYTES)
    return free


def measured_step(overlap):
    layers = make_layers()
    compute = SAMPLES * SAMPLE_SECONDS / dist.get_world_size()

    def step(wire):
        sleep(compute / 3)
        per_bucket = 2 if overlap else 2 * LAYERS
        step_with_buckets(layers, per_bucket, wire, compute * 2 / 3 / LAYERS, wait_for_backward=not overlap)

    with Wire() as wire:
        return min(time_on_ranks(step, wire, warmup=1, tries=4))


WORLDS = [1, 2, 4, 8]
figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
ax.plot([1, 16], [1, 16], ":", color="gray", label="ideal")
for k, overlap in enumerate((False, True)):
    name = "layer by layer in backward" if overlap else "one all-reduce after backward"
    curve = [predicted(1, overlap) / predicted(p, overlap) for p in range(1, 17)]
    seconds = [launch(measured_step, overlap, ranks=p, trace=False).values[0] for p in WORLDS]
    ax.plot(range(1, 17), curve, "--", color=rank_color(k), label=f"predicted, {name}")
    ax.plot(WORLDS, [seconds[0] / s for s in seconds], "o", color=rank_color(k))
    for p, s in zip(WORLDS, seconds, strict=True):
        print(f"{name}, {p} ranks: predicted {1e3 * predicted(p, overlap):5.1f} ms, measured {1e3 * s:5.1f} ms")
ax.set(xlabel="ranks", ylabel="times as fast as one rank", xlim=(0, 17), ylim=(0, 5))
ax.legend(frameon=False, fontsize=8, loc="upper right")
plt.show()

# %% [markdown]
# First nearly straight, then bent, then flat: as p grows, C/p goes to nothing and M stays (its bytes go
# towards 2nβ, its latencies even grow with p). Overlap helps while there is backward left to hide behind;
# with many ranks there is not, and then eight small messages cost more than one. **More ranks with the same
# batch** is *strong scaling*; it ends. Real runs grow the batch with p, and must then look at learning rate
# and convergence again.
#
# ## What to take with you
#
# - Broadcast once; average gradients in every step; replicas then stay equal. It *is* the whole batch in
#   one process.
# - Sum, and divide once. SGD shows a wrong factor, Adam hides it.
# - Buckets: few messages, started from hooks while backward runs. Neither too small nor too large.
# - Same collectives, same order, on all ranks, whatever their data.
# - Accumulate first, send once; weigh tokens, not micro-batches.
# - Each card holds everything: memory p times over. That is what notebook 06 takes apart.
#
# **Next**: [lab 02](../labs/lab02_data_parallel/lab02_data_parallel.ipynb), with buffers, tied, frozen and
# unused parameters, any bucket size, and every token counted.
