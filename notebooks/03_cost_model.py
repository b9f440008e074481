# %% [markdown]
# # 03 · How long will it take?
#
# **You will build** a model of a message with two numbers in it, fit it to measurements that you take here,
# predict the time of a ring and of a tree all-reduce, and hold the prediction to the clock.
#
# **You need** notebook [02](02_collectives.ipynb) (ring and tree). A straight line through points.
#
# **Time**: about 40 minutes to read and try; 30 seconds to run.

# %%
import os
from statistics import median
from time import sleep

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.distributed as dist

from utils import launch
from utils.cost import AlphaBeta, algbw, busbw
from utils.measure import time_on_ranks
from utils.pictures import draw_times, size_label, time_label

KIB, MIB = 2**10, 2**20

# %% [markdown]
# ## One message: two kinds of cost
#
# The lecture's model of a message of n bytes is
#
# $$T(n) \approx \alpha + n\beta, \qquad \beta = 1/\text{bandwidth}.$$
#
# **α** is the **latency** (启动延迟): what a message costs however short it is. **β** is the time for one
# byte more, one over the **bandwidth** (带宽). Crowded links, the layout of the machine and the adding of
# numbers are left out.
#
# **Predict.** A message of 8 bytes against one of 8 KiB: a thousand times as long, how much slower? And 8
# MiB against 8 KiB?
#
# We measure with a *ping-pong*: rank 0 sends n bytes, rank 1 sends them back; half of that is one message.
# Each size is tried several times, after two tries that do not count (the first opens connections).

# %%
SIZES = [8 * 4**k for k in range(11)]  # 8 bytes to 8 MiB


def ping_pong(x):
    peer = 1 - dist.get_rank()
    if dist.get_rank() == 0:
        dist.send(x, dst=peer)
        dist.recv(x, src=peer)
    else:
        dist.recv(x, src=peer)
        dist.send(x, dst=peer)


def measure_messages():
    tries = []
    for size in SIZES:
        x = torch.zeros(size, dtype=torch.uint8)
        tries.append([seconds / 2 for seconds in time_on_ranks(ping_pong, x, tries=25)])
    return tries


messages = launch(measure_messages, ranks=2, trace=False).values[0]
print(f"{'size':>9}  {'fastest':>9}  {'median':>9}  {'slowest':>9}  slowest/fastest")
for size, tries in zip(SIZES, messages, strict=True):
    times = "  ".join(f"{time_label(seconds):>9}" for seconds in (min(tries), median(tries), max(tries)))
    print(f"{size_label(size):>9}  {times}  {max(tries) / min(tries):10.1f} x")

# %% [markdown]
# Read down the *fastest* column: up to some KiB the time hardly changes (that is α), at the end it grows in
# step with the size (that is β).
#
# Now read across a row. The same message took very different times, although nothing in the program
# changed: these ranks share the machine with everything else that runs on it, and now and then one of them
# must wait for a core, some milliseconds at a time. Noise of this kind only ever *adds* time. So the
# fastest try is the nearest to what the machine can do, and the median is what you get on an ordinary day;
# the average is good for neither, because a few bad tries pull it up. Here the model is fitted to the
# fastest tries, and the pictures show the way up to the median as a bar. Run the cell again: the slowest
# column jumps about, the fastest stays.

# %% [markdown]
# ## Fit the line
#
# α and β are the intercept and the slope of a straight line. But which line is best? Ordinary least squares
# minimises the sum of (predicted - measured)², in seconds². An error of 10 % on 8 MiB is then thousands of
# times "worse" than an error of 100 % on 8 bytes: the small messages, which alone know α, have no say.
#
# Dividing each equation by the measured time makes all *relative* errors count alike:
#
# $$\text{minimise} \quad \sum_i \Big(\frac{\alpha + n_i\beta - t_i}{t_i}\Big)^2$$
#
# **Predict.** Which of the two fits finds an α closer to the time of your 8-byte message?

# %%
def fit(sizes, seconds, *, relative):
    """Least-squares alpha (s) and beta (s/byte) of seconds = alpha + sizes * beta."""
    n, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    weight = 1 / t if relative else np.ones_like(t)
    columns = np.stack([weight, n * weight], axis=1)
    alpha, beta = np.linalg.lstsq(columns, t * weight, rcond=None)[0]
    return float(alpha), float(beta)


fastest = [min(tries) for tries in messages]
for name, relative in (("ordinary", False), ("relative", True)):
    alpha, beta = fit(SIZES, fastest, relative=relative)
    bandwidth = f"{1 / beta / 1e9:.2f} GB/s = {1 / beta / 2**30:.2f} GiB/s"
    print(f"{name}: alpha = {alpha * 1e6:7.1f} µs, bandwidth = {bandwidth}")
print(f"measured: 8 bytes in {fastest[0] * 1e6:.1f} µs")

# %%
link = AlphaBeta(*fit(SIZES, fastest, relative=True))
draw_times(
    {"one message": (SIZES, messages)},
    {"one message": (SIZES, [link.time(size) for size in SIZES])},
    title="ping-pong between two ranks: fastest try, bar up to the median",
)
plt.show()
half = link.alpha / link.beta
print(f"at n = alpha/beta = {size_label(half)} both parts cost the same")

# %% [markdown]
# On these axes the line is a bent one: flat where α rules, rising where β does, with the bend at n = α/β.
# **Shorter than that, a message costs its latency; longer, it costs its bytes.** Where the points leave the
# line in the middle, the machine changes its ways (buffers, caches): a model of two numbers cannot know.
#
# **Predict** with the model before you go on: a hundred messages of 1 KiB, or one of 100 KiB?

# %%
def many_or_one():
    small, large = torch.zeros(KIB, dtype=torch.uint8), torch.zeros(100 * KIB, dtype=torch.uint8)

    def hundred():
        for _ in range(100):
            ping_pong(small)

    return min(time_on_ranks(hundred, warmup=1, tries=4)) / 2, min(time_on_ranks(ping_pong, large)) / 2


hundred, one = launch(many_or_one, ranks=2, trace=False).values[0]
print(f"100 of 1 KiB: predicted {time_label(100 * link.time(KIB))}, measured {time_label(hundred)}")
print(f"1 of 100 KiB: predicted {time_label(link.time(100 * KIB))}, measured {time_label(one)}")

# %% [markdown]
# The same bytes. This is why frameworks put gradients together into *buckets* (梯度桶) before they send
# them.
#
# ## Ring and tree, on paper
#
# From notebook 02, for p = 4 ranks and a buffer of n bytes:
#
# - the **ring** makes 2 (p-1) = 6 steps with n/4 bytes each: $T_{ring} = 6\,(\alpha + \tfrac{n}{4}\beta) =
#   6\alpha + 1.5\,n\beta$
# - the **tree** makes 2 log₂ p = 4 rounds with n bytes each: $T_{tree} = 4\,(\alpha + n\beta) = 4\alpha +
#   4\,n\beta$
#
# The tree has the smaller number before α, the ring before nβ. They cross where 6α + 1.5 nβ = 4α + 4 nβ,
# that is at **n = 0.8 α/β**.
#
# **Predict.** Put your α/β in. Below which size should the tree win on your machine?

# %%
def ring_time(link, n):
    return 6 * link.time(n / 4)


def tree_time(link, n):
    return 4 * link.time(n)


predicted_crossover = 0.8 * link.alpha / link.beta
print(f"predicted crossover: {size_label(predicted_crossover)}")

# %% [markdown]
# ## Ring and tree, on the clock
#
# The two algorithms of notebook 02, for 4 ranks, without the notes that they took for the pictures. For
# each size we also time what one ring step and one tree round cost without the arithmetic; that is for
# later.

# %%
BUFFERS = [KIB * 4**k for k in range(8)]  # 1 KiB to 16 MiB


def tries_for(size):
    return 15 if size < MIB else 5  # short ones suffer more from noise, and cost little




def start_send(x, dst, wire=None):
    """dist.isend; on a `wire` the message first takes that wire's time (used at the end of this notebook)."""
    if wire is not None:
        sleep(wire.time(x.numel() * x.element_size()))
    return dist.isend(x, dst=dst)


def ring_all_reduce(x, wire=None):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces, arriving = x.view(world, -1), torch.empty(x.numel() // world, dtype=x.dtype)
    for k in range(2 * (world - 1)):
        adding = k < world - 1
        first = rank - k if adding else rank + world - k
        handle = start_send(pieces[first % world], (rank + 1) % world, wire)
        dist.recv(arriving, src=(rank - 1) % world)
        handle.wait()
        if adding:
            pieces[(first - 1) % world] += arriving
        else:
            pieces[(first - 1) % world] = arriving


def tree_all_reduce(x, wire=None):
    rank, half, part = dist.get_rank(), dist.get_world_size() // 2, torch.empty_like(x)
    reach = half
    while reach >= 1:  # reduce to rank 0
        if rank < reach:
            dist.recv(part, src=rank + reach)
            x += part
        elif rank < 2 * reach:
            start_send(x, rank - reach, wire).wait()
        reach //= 2
    reach = 1
    while reach <= half:  # broadcast from rank 0
        if rank < reach:
            start_send(x, rank + reach, wire).wait()
        elif rank < 2 * reach:
            dist.recv(x, src=rank - reach)
        reach *= 2


def pass_right(x, arriving):
    """Six steps of a ring without the arithmetic: all ranks send and receive at once."""
    for _ in range(6):
        handle = dist.isend(x, dst=(dist.get_rank() + 1) % dist.get_world_size())
        dist.recv(arriving, src=(dist.get_rank() - 1) % dist.get_world_size())
        handle.wait()


def two_pairs(x):
    """There and back between ranks 0 and 2, and between 1 and 3, as in the widest round of the tree."""
    rank, peer = dist.get_rank(), dist.get_rank() ^ 2
    for sender in (0, 2):
        if rank & 2 == sender:
            dist.send(x, dst=peer)
        else:
            dist.recv(x, src=peer)


def measure_all_reduce():
    tries = {"ring": [], "tree": [], "ring step": [], "tree round": []}
    for size in BUFFERS:
        x, piece = torch.zeros(size // 4), torch.zeros(size // 16)
        count = tries_for(size)
        tries["ring"].append(time_on_ranks(ring_all_reduce, x, tries=count))
        tries["tree"].append(time_on_ranks(tree_all_reduce, x, tries=count))
        steps = time_on_ranks(pass_right, piece, torch.empty_like(piece), tries=count)
        tries["ring step"].append([seconds / 6 for seconds in steps])
        tries["tree round"].append([seconds / 2 for seconds in time_on_ranks(two_pairs, x, tries=count)])
    return tries


def right_sums():
    sums = []
    for all_reduce in (ring_all_reduce, tree_all_reduce):
        x = torch.arange(8.0) * (dist.get_rank() + 1)
        all_reduce(x)
        sums.append(x.tolist())
    return sums


print("right values first:", launch(right_sums, ranks=4, trace=False).values[3])
measured = launch(measure_all_reduce, ranks=4, trace=False).values[0]

# %%
def compare(sizes, measured, ring_link, tree_link, title):
    predicted = {
        "ring": [ring_time(ring_link, n) for n in sizes],
        "tree": [tree_time(tree_link, n) for n in sizes],
    }
    draw_times(
        {name: (sizes, measured[name]) for name in predicted},
        {name: (sizes, seconds) for name, seconds in predicted.items()},
        title=title,
    )
    plt.show()
    for name, seconds in predicted.items():
        off = [min(tries) / guess for tries, guess in zip(measured[name], seconds, strict=True)]
        print(f"{name}: measured over predicted, by size:", "  ".join(f"{ratio:.1f}" for ratio in off))


compare(BUFFERS, measured, link, link, "all-reduce on 4 ranks, predicted from the ping-pong of 2")

# %% [markdown]
# The shape is right: flat, then rising. But both are slower than their lines, and the ring by far more. Why
# the ring?
#
# The model gave each message a link of its own. In the ping-pong one message was under way at a time; in a
# ring step all four ranks send and receive at once. On a large machine each has its own wire. Here the
# "wires" are memory copies, and what makes them are the cores:

# %%
print(f"this machine has {os.cpu_count()} cores for 4 ranks, each of which sends and receives at once")

# %% [markdown]
# **Congestion** (拥塞) is what the model left out. The remedy is not a cleverer formula but a better
# measurement: fit α and β *to the link as it is used*. For the ring, all four ranks passing to the right at
# once; for the tree, two pairs at once. Both were timed between the tries of the algorithms, so that they
# saw the same neighbours on this machine.
#
# **Predict.** For whom does it change more, ring or tree? And which of the two numbers, α or β?

# %%
def fit_fastest(sizes, all_tries):
    return AlphaBeta(*fit(sizes, [min(tries) for tries in all_tries], relative=True))


ring_link = fit_fastest([size // 4 for size in BUFFERS], measured["ring step"])
tree_link = fit_fastest(BUFFERS, measured["tree round"])
for name, each in (("one pair", link), ("two pairs at once", tree_link), ("all four at once", ring_link)):
    print(f"{name:>17}: alpha = {each.alpha * 1e6:6.1f} µs, {each.bandwidth / 1e9:.2f} GB/s a link")

# %%
compare(BUFFERS, measured, ring_link, tree_link, "the same measurements, predicted from links in use")

# %% [markdown]
# Much closer, with the *same formulas*: 2 (p-1) steps of α + nβ/p, 2 log₂ p rounds of α + nβ. The model was
# not wrong; it had been given the wrong link. Whenever you read a bandwidth, ask: measured with how many
# talking at once? What is still missing is the adding itself, and memory that no longer fits into the
# cache.
#
# ## The crossover, predicted and measured
#
# With a link for each, α and β of the ring marked r and those of the tree t, they cross where $6\alpha_r +
# 1.5\,n\beta_r = 4\alpha_t + 4\,n\beta_t$.

# %%
def crossing(sizes, measured):
    """Size from which on the ring is the faster one, read between the points; in words."""
    ring, tree = ([min(tries) for tries in measured[name]] for name in ("ring", "tree"))
    ahead = [np.log(r / t) for r, t in zip(ring, tree, strict=True)]
    if ahead[-1] >= 0:
        return f"none up to {size_label(sizes[-1])}"
    last = max((k for k in range(len(sizes)) if ahead[k] >= 0), default=None)
    if last is None:
        return f"below {size_label(sizes[0])}"
    part = ahead[last] / (ahead[last] - ahead[last + 1])
    return size_label(sizes[last] * (sizes[last + 1] / sizes[last]) ** part)


slower, steeper = 6 * ring_link.alpha - 4 * tree_link.alpha, 4 * tree_link.beta - 1.5 * ring_link.beta
in_use = size_label(max(slower, 0) / steeper) if steeper > 0 else "none, the ring never catches up"
print("predicted, a free link each:", size_label(predicted_crossover))
print("predicted, links in use:    ", in_use)
print("measured:                   ", crossing(BUFFERS, measured))

# %% [markdown]
# If on your machine the ring wins late, by little, or not at all, the cores are the reason: both algorithms
# move 6 n bytes in total, and where all links are the same few cores, the total decides. Two lines that
# meet at a small angle also meet *somewhere*: a few per cent in a slope move the crossing a long way.
# Expect the order of magnitude, and another number tomorrow.
#
# ## With a wire for each rank
#
# On a cluster every rank has a wire, and the wire is slower than memory. We can have that here. Let every
# message first take the time of a wire, α = 15 ms and 0.05 GB/s, by sleeping: a rank that sleeps needs no
# core, so four wires can be busy at once.
#
# **Predict.** The crossover is at 0.8 α/β. Work it out before you run the cell.

# %%
WIRE = AlphaBeta(alpha=15e-3, beta=1 / 0.05e9)
WIRE_BUFFERS = [16 * KIB * 4**k for k in range(5)]  # 16 KiB to 4 MiB


def measure_on_wire():
    tries = {"ring": [], "tree": []}
    for size in WIRE_BUFFERS:
        x = torch.zeros(size // 4)
        tries["ring"].append(time_on_ranks(ring_all_reduce, x, WIRE, warmup=0, tries=3))
        tries["tree"].append(time_on_ranks(tree_all_reduce, x, WIRE, warmup=0, tries=3))
    return tries


on_wire = launch(measure_on_wire, ranks=4, trace=False).values[0]
compare(WIRE_BUFFERS, on_wire, WIRE, WIRE, "all-reduce on 4 ranks with a wire each")
print("predicted crossover:", size_label(0.8 * WIRE.alpha / WIRE.beta))
print("measured crossover: ", crossing(WIRE_BUFFERS, on_wire))

# %% [markdown]
# Where its assumption holds, two numbers are enough. **Short buffers, few rounds: the tree. Long buffers,
# little per link: the ring.** Libraries such as NCCL choose like this: α and β of each link, a formula for
# each algorithm, and the smallest prediction wins.
#
# ## Two bandwidths
#
# How fast is a collective, in GB/s (1 GB = 10^9 bytes, 1 GiB = 2^30 bytes)? The field has two answers, and
# they are easily confused.
#
# - **algbw** = size / time. The size is the larger of a rank's input and output: for all-gather the joined
#   result, for reduce-scatter the whole input.
# - **busbw** = algbw × a factor: 2 (p-1)/p for all-reduce; (p-1)/p for all-gather, reduce-scatter and
#   all-to-all; 1 for broadcast and reduce. It is what the busiest link must have carried at least, so it
#   can be compared with the wire, and between world sizes. These are the conventions of nccl-tests.
#
# **Predict.** On 4 ranks, at equal size: which has the higher algbw, all-reduce or all-gather? Which the
# higher busbw?

# %%
SIZE = 8 * MIB


def measure_collectives():
    world = dist.get_world_size()
    x, piece = torch.zeros(SIZE // 4), torch.zeros(SIZE // 4 // world)
    calls = {
        "all_reduce": (dist.all_reduce, x),
        "all_gather": (dist.all_gather_single, x, piece),
        "reduce_scatter": (dist.reduce_scatter_single, piece, x),
        "broadcast": (dist.broadcast, x, 0),
    }
    return {name: min(time_on_ranks(*call, tries=11)) for name, call in calls.items()}


seconds = launch(measure_collectives, ranks=4, trace=False).values[0]
print(f"{'':>15}  {'time':>9}  {'algbw':>10}  {'busbw':>10}     (4 ranks, {size_label(SIZE)})")
for op, took in seconds.items():
    rates = f"{algbw(SIZE, took) / 1e9:>5.2f} GB/s  {busbw(op, SIZE, took, 4) / 1e9:>5.2f} GB/s"
    print(f"{op:>15}  {time_label(took):>9}  {rates}")

# %% [markdown]
# All-reduce moves twice what all-gather moves, so its algbw is lower; the bus factors take that out, and
# what is left between the busbw numbers is how good each implementation is. If one stands out, it does more
# work than it must: gloo's reduce-scatter, for example, sends about as much as its all-reduce.
#
# ## What to take with you
#
# - T(n) ≈ α + nβ. Below n = α/β you pay for messages, above for bytes: so merge short messages.
# - Fit with relative errors, on the fastest of several tries, and say which number you show.
# - Ring: 2 (p-1) steps, 2 (p-1)/p of the bytes. Tree: 2 log₂ p rounds, all the bytes each time. Small:
#   tree. Large: ring.
# - α and β belong to a link *in a situation*. Measure them in the situation that you predict.
# - Say algbw or busbw, GB or GiB.
#
# **Next**: in [lab 01](../labs/lab01_allreduce/lab01_allreduce.ipynb) you fit and predict for any number of
# ranks.
