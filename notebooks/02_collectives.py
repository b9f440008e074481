# %% [markdown]
# # 02 · Collectives from send and receive
#
# **You will build** every collective operation that distributed training uses, from nothing but `send` and
# `recv`: broadcast, reduce, all-reduce, scatter, gather, all-gather, reduce-scatter and all-to-all; then a
# ring and a tree, step by step.
#
# **You need** tensors and slicing, and notebook [00](00_start_here.ipynb) (how `launch` starts ranks).
#
# **Time**: about 60 minutes to read and try; 20 seconds to run.
#
# Four ranks, four numbers each, even pieces: this notebook shows the simple case. Lab 01 asks you for the
# general one.

# %%
import matplotlib.pyplot as plt
import torch
import torch.distributed as dist

from utils import Deadlock, launch
from utils.pictures import draw_before_after, draw_rounds, draw_steps, marks

RANKS = 4

# %% [markdown]
# ## Numbers that remember where they came from
#
# A **rank** (进程编号) is one process of the job; the ranks that talk to each other form a **group**
# (通信组), and their number is the **world size** (进程总数). To see who holds what, every rank marks its
# numbers: rank 0 writes 1, 2, 3, 4; rank 1 writes 10, 20, 30, 40; rank 2 writes hundreds, rank 3 thousands.
# After any operation a digit tells whose number it is, and a sum tells who was added: 1010 has ranks 1 and
# 3 in it. The pictures below are coloured from these digits, that is, from the data that the ranks really
# hold.

# %%
def show(operation, held_by, title):
    """Run `operation` on what each rank holds, draw before and after; returns the run."""

    def on_each_rank():
        x = held_by(dist.get_rank())
        before = None if x is None else x.clone()
        return before, operation(x)

    run = launch(on_each_rank, ranks=RANKS)
    draw_before_after([before for before, _ in run.values], [after for _, after in run.values], title)
    plt.show()
    return run


def nothing_yet(numel):
    return torch.zeros(numel, dtype=torch.int64)


def own_numbers(rank):
    return marks(rank, 4)


# %% [markdown]
# ## One message
#
# **Point-to-point** (点对点通信) is a pair: one rank calls `dist.send(x, dst)`, the other
# `dist.recv(buffer, src)`. The receiver must know the shape and the dtype beforehand and bring a buffer of
# that size: only the bytes travel.
#
# **Predict.** Rank 3 sends its four numbers to rank 1, which receives them into a buffer of zeros. Ranks 0
# and 2 do nothing. What does rank 3 hold afterwards? Which ranks have to wait for which?

# %%
def one_message(x):
    rank = dist.get_rank()
    if rank == 3:
        dist.send(x, dst=1)
    if rank == 1:
        x = nothing_yet(4)
        dist.recv(x, src=3)
    return x


run = show(one_message, own_numbers, "rank 3 sends to rank 1")
for rank in range(RANKS):
    print(f"rank {rank} sent {run.trace.bytes_sent(rank)} bytes, received {run.trace.bytes_received(rank)}")

# %% [markdown]
# Sending copies: rank 3 still has its numbers. 32 bytes travelled, four integers of 8 bytes. Ranks 1 and 3
# wait for each other; ranks 0 and 2 were done at once. Nobody else had to know.

# %% [markdown]
# ## Broadcast: one to all
#
# **Collective communication** (集合通信) is different: *all* ranks of the group take part, in the same
# order. **Broadcast** (广播) puts the root's data on every rank: the first parameters of a model, for
# example.
#
# **Predict.** With plain sends, how many messages are there for 4 ranks? Who sends them?

# %%
def broadcast(x):
    """Rank 0's numbers, on every rank."""
    if dist.get_rank() == 0:
        for peer in range(1, dist.get_world_size()):
            dist.send(x, dst=peer)
    else:
        dist.recv(x, src=0)
    return x


run = show(broadcast, lambda rank: marks(0, 4) if rank == 0 else nothing_yet(4), "broadcast from rank 0")
print("messages sent by each rank:", [run.trace.ops(rank).count("send") for rank in range(RANKS)])

# %% [markdown]
# Three messages, all from rank 0, one after the other. With 1000 ranks the root would send 999 times while
# the others wait. Keep that in mind for the tree at the end.

# %% [markdown]
# ## Reduce: all to one, added up
#
# **Reduce** (规约) combines the data of all ranks, element by element, on the root. The operation is often
# a sum; it can be a maximum or a minimum. It must not depend on the order in which the pieces arrive.
#
# **Predict.** Which number stands in the first cell of rank 0 afterwards? (The digits tell.)

# %%
def reduce(x):
    """The sum over ranks, on rank 0; the others keep what they had."""
    if dist.get_rank() != 0:
        dist.send(x, dst=0)
        return x
    total, part = x.clone(), torch.empty_like(x)
    for peer in range(1, dist.get_world_size()):
        dist.recv(part, src=peer)
        total += part
    return total


_ = show(reduce, own_numbers, "reduce to rank 0")

# %% [markdown]
# 1111: every rank once. If one rank had been added twice, a digit would say 2.

# %% [markdown]
# ## All-reduce: the sum, everywhere
#
# **All-reduce** (全规约, AllReduce) is what data-parallel training calls after every backward pass: each
# rank brings its gradient, each rank leaves with the same sum. Whether the sum is then divided by the world
# size is the framework's business: all-reduce adds.
#
# The shortest way to write it is to reduce to rank 0 and to broadcast from there.
#
# **Predict.** For a buffer of S bytes on 4 ranks: how many bytes does rank 0 send, how many does rank 3?

# %%
def reduce_then_broadcast(x):
    return broadcast(reduce(x))


run = show(reduce_then_broadcast, own_numbers, "all-reduce, through rank 0")
S = 4 * 8
for rank in range(RANKS):
    sent, received = run.trace.bytes_sent(rank) / S, run.trace.bytes_received(rank) / S
    print(f"rank {rank} sent {sent:.2f} S, received {received:.2f} S")

# %% [markdown]
# Right values, poor traffic. Rank 0 moves 3 S in and 3 S out while the others move S each: the root's link
# is the bottleneck, and it gets worse with every rank. This is also the shape of the old *parameter server*
# (参数服务器). The ring, below, spreads the same work evenly.

# %% [markdown]
# ## Scatter and gather: pieces out, pieces back
#
# **Scatter** (分发) cuts the root's data and gives each rank one piece. **Gather** (收集) brings the pieces
# back to the root, in rank order.
#
# **Predict.** After scatter and then gather, is every rank as it was before?

# %%
def scatter(x):
    """Rank 0 cuts x into equal pieces; rank r leaves with piece r."""
    if dist.get_rank() != 0:
        piece = nothing_yet(1)
        dist.recv(piece, src=0)
        return piece
    pieces = x.chunk(dist.get_world_size())
    for peer in range(1, dist.get_world_size()):
        dist.send(pieces[peer], dst=peer)
    return pieces[0].clone()


def gather(piece):
    """Rank 0 leaves with everybody's pieces in rank order, the others with nothing."""
    if dist.get_rank() != 0:
        dist.send(piece, dst=0)
        return None
    pieces = [piece, *(torch.empty_like(piece) for _ in range(1, dist.get_world_size()))]
    for peer in range(1, dist.get_world_size()):
        dist.recv(pieces[peer], src=peer)
    return torch.cat(pieces)


show(scatter, lambda rank: marks(0, 4) if rank == 0 else None, "scatter from rank 0")
_ = show(gather, lambda rank: marks(rank, 1), "gather to rank 0")

# %% [markdown]
# Scatter and gather undo each other for the root; nothing is added, each byte travels once. Note the
# `clone`: without it rank 0's piece would be a window into the old buffer and would keep all of it alive.

# %% [markdown]
# ## When everybody sends first
#
# Next comes an operation without a root: every rank sends to every other. The obvious program is: *first
# send to all, then receive from all*.
#
# **Predict.** `dist.send` returns when the receiver has taken the data. What happens?

# %%
def send_first(piece):
    world = dist.get_world_size()
    others = [peer for peer in range(world) if peer != dist.get_rank()]
    pieces = [torch.empty_like(piece) for _ in range(world)]
    pieces[dist.get_rank()] = piece
    for peer in others:
        dist.send(piece, dst=peer)
    for peer in others:
        dist.recv(pieces[peer], src=peer)
    return torch.cat(pieces)


def try_send_first():
    return send_first(marks(dist.get_rank(), 2))


try:
    launch(try_send_first, ranks=RANKS)
except Deadlock as report:
    print(report)

# %% [markdown]
# A **deadlock** (死锁): each rank waits for somebody who is waiting. Nothing can change that, so the launch
# ends at once and says so. Read the report from the top: *what each rank is stuck in*, *whom it waits for*,
# *which line it is at*. Rank 0 waits for rank 1 and rank 1 for rank 0: a circle, and ranks 2 and 3 queue up
# behind it.
#
# On a large machine nobody tells you this. The job stands still until a timeout, and the rank that prints
# the error is seldom the one at fault. The question is always the same: **who is the first that did not
# arrive, and where is it instead?**
#
# Two remedies. *Order*: even ranks send first, odd ranks receive first. Or *do not wait*: `dist.isend` and
# `dist.irecv` only start the transfer and return a handle; `handle.wait()` comes later. Until then the
# buffer belongs to the transfer: neither read nor write it.

# %% [markdown]
# ## All-gather: every piece, everywhere
#
# **All-gather** (全收集, AllGather) joins the pieces of all ranks, in rank order, on every rank. Nothing is
# added. Sharded parameters are put together like this just before they are used.
#
# **Predict.** Every rank brings 2 numbers. How many does it hold afterwards? How many bytes does it
# receive?

# %%
def exchange(outgoing, incoming):
    """Send outgoing[r] to rank r and receive incoming[r] from it, for every other rank, all at once."""
    others = [peer for peer in range(dist.get_world_size()) if peer != dist.get_rank()]
    handles = [dist.irecv(incoming[peer], src=peer) for peer in others]
    handles += [dist.isend(outgoing[peer], dst=peer) for peer in others]
    for handle in handles:
        handle.wait()


def all_gather(piece):
    world = dist.get_world_size()
    pieces = [torch.empty_like(piece) for _ in range(world)]
    pieces[dist.get_rank()] = piece
    exchange([piece] * world, pieces)
    return torch.cat(pieces)


run = show(all_gather, lambda rank: marks(rank, 2), "all-gather")
print("bytes received by each rank:", [run.trace.bytes_received(rank) for rank in range(RANKS)])

# %% [markdown]
# Eight numbers, of which six arrived: 3 pieces of 16 bytes. In general (p-1)/p of the result travels to
# each of p ranks.

# %% [markdown]
# ## All-to-all: everybody has something for everybody
#
# **All-to-all** (全交换, All-to-All): piece j of rank i ends up as piece i of rank j. Tokens travel to
# their experts like this.
#
# **Predict.** Think of the four rows of the left picture as a matrix. What does the operation do to it?

# %%
def all_to_all(x):
    outgoing = list(x.chunk(dist.get_world_size()))
    incoming = [torch.empty_like(piece) for piece in outgoing]
    incoming[dist.get_rank()].copy_(outgoing[dist.get_rank()])
    exchange(outgoing, incoming)
    return torch.cat(incoming)


_ = show(all_to_all, own_numbers, "all-to-all")

# %% [markdown]
# It transposes it. Do it twice and everything is home again.

# %% [markdown]
# ## Reduce-scatter: the sum, in pieces
#
# **Reduce-scatter** (规约分发, ReduceScatter) adds like reduce and cuts like scatter: rank r leaves with
# piece r of the sum. It is for gradients whose owner is one rank: nobody needs more than its own part.
#
# **Predict.** It is an all-to-all and one more line. Which line?

# %%
def reduce_scatter(x):
    received = all_to_all(x)
    return received.view(dist.get_world_size(), -1).sum(0)


_ = show(reduce_scatter, own_numbers, "reduce-scatter")

# %% [markdown]
# Look at the last two pictures together with all-gather: **reduce-scatter followed by all-gather is
# all-reduce.** The first leaves every piece of the sum on one rank, the second brings the pieces to all.
# This is how the ring does it.

# %% [markdown]
# ## The ring, step by step
#
# Put the ranks in a ring (环). Each one only ever sends to the right and receives from the left. The buffer
# is cut into p pieces, and in every step each rank sends *one* piece:
#
# 1. **Reduce-scatter**, p - 1 steps: send a piece; *add* the one that arrives; in the next step send on
#    what you have just added up.
# 2. **All-gather**, p - 1 steps: send a finished piece; *store* the one that arrives; send it on.
#
# Rank r starts with piece r. In step k it sends piece r - k and receives piece r - k - 1 (counted modulo
# p).
#
# **Predict.** After the p - 1 = 3 steps of the first phase, which piece is complete on rank 0?

# %%
def ring_step(pieces, k, *, add):
    """Pass one piece to the right: the first phase adds it, the second stores it."""
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing, incoming = (rank - k) % world, (rank - k - 1) % world
    arriving = torch.empty_like(pieces[incoming])
    handle = dist.isend(pieces[outgoing], dst=(rank + 1) % world)
    dist.recv(arriving, src=(rank - 1) % world)
    handle.wait()
    pieces[incoming] = pieces[incoming] + arriving if add else arriving


def ring_all_reduce(x):
    """Sum over ranks of x, whose length the world size divides; returns x as it was after each step."""
    world = dist.get_world_size()
    pieces = x.view(world, -1).clone()
    after = [pieces.clone()]
    for k in range(world - 1):
        ring_step(pieces, k, add=True)
        after.append(pieces.clone())
    for k in range(world - 1):
        ring_step(pieces, k - 1, add=False)  # rank r now has piece r + 1 complete, so it begins there
        after.append(pieces.clone())
    return [state.flatten() for state in after]


run = launch(lambda: ring_all_reduce(own_numbers(dist.get_rank())), ranks=RANKS)
steps = [[run.values[rank][k] for rank in range(RANKS)] for k in range(2 * RANKS - 1)]
draw_steps(steps[:4], ["start", *(f"reduce-scatter, step {k}" for k in (1, 2, 3))])
draw_steps(steps[3:], ["reduce-scatter done", *(f"all-gather, step {k}" for k in (1, 2, 3))])
plt.show()

# %% [markdown]
# A thick frame marks the piece that changed in a step. In the upper row a piece gathers one more colour
# each time it moves down a rank. In the lower row the finished pieces travel round once more. Rank 0
# finishes piece 1, rank 1 piece 2: always the one to the right.
#
# **Predict.** How much does each rank send now, in units of S? Compare with the 3 S of rank 0 above.

# %%
for rank in range(RANKS):
    print(f"rank {rank} sent {run.trace.bytes_sent(rank) / S:.2f} S, only to {sorted(run.trace.peers(rank))}")
run.trace.plot()
plt.show()

# %% [markdown]
# 2 (p-1) steps of S/p each: **2 (p-1)/p S**, here 1.5 S, on every rank alike. As p grows this tends to 2 S
# and *no further*: a thousand ranks send hardly more than four. The price is the number of steps, 2 (p-1):
# each costs a message's fixed delay, however short the message is. Notebook [03](03_cost_model.ipynb) puts
# numbers on that.
#
# Here p divides the length. When it does not, the pieces differ in size, and a rank must know how long the
# piece is that is coming. That is your job in lab 01.

# %% [markdown]
# ## The tree, step by step
#
# For a short message the number of rounds is all that matters. In a **tree** (树) everybody who has the
# data helps to pass it on: after round 1 two ranks have it, after round 2 four, after round k 2^k.
#
# **Predict.** Rounds for 4 ranks? For 1024?

# %%
def tree_broadcast(x, log):
    """Rank 0's x on all of 2**k ranks. log gets the value after each round and the rank sent to, if any."""
    rank, reach = dist.get_rank(), 1
    while reach < dist.get_world_size():
        peer = None
        if rank < reach:
            peer = rank + reach
            dist.send(x, dst=peer)
        elif rank < 2 * reach:
            dist.recv(x, src=rank - reach)
        log.append((x.item(), peer))
        reach *= 2
    return x


def tree_reduce(x, log):
    """The sum of x over 2**k ranks, on rank 0: the broadcast run backwards."""
    rank, reach = dist.get_rank(), dist.get_world_size() // 2
    while reach >= 1:
        peer = None
        if rank < reach:
            part = torch.empty_like(x)
            dist.recv(part, src=rank + reach)
            x += part
        elif rank < 2 * reach:
            peer = rank - reach
            dist.send(x, dst=peer)
        log.append((x.item(), peer))
        reach //= 2
    return x


def show_tree(tree, start, ax, title):
    def on_each_rank():
        x = start(dist.get_rank())
        log = [(x.item(), None)]
        tree(x, log)
        return log

    logs = launch(on_each_rank, ranks=RANKS).values
    rounds = range(len(logs[0]))
    held = [[logs[rank][k][0] for rank in range(RANKS)] for k in rounds]
    sent = [[(rank, log[k][1]) for rank, log in enumerate(logs) if log[k][1] is not None] for k in rounds]
    draw_rounds(held, sent[1:], ax, title=title)


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 2.8), layout="constrained")
show_tree(tree_reduce, lambda rank: marks(rank, 1), left, "tree reduce to rank 0")
show_tree(tree_broadcast, lambda rank: marks(rank, 1) * (rank == 0), right, "tree broadcast from rank 0")
plt.show()

# %% [markdown]
# Two rounds for 4 ranks, 10 for 1024: log2 p. Reduce is broadcast read from the bottom up: turn the arrows
# round. One after the other they make an all-reduce of 2 log2 p rounds, against 2 (p-1) of the ring. But
# every message carries all S bytes, so for long buffers the ring wins. *Where* they cross is notebook 03.

# %% [markdown]
# ## Groups
#
# Real jobs run several collectives side by side: ranks 0 and 1 share a layer, ranks 0 and 2 share a
# gradient. `dist.new_group` makes a **process group** of some ranks, and a collective can be given a
# `group=`.
#
# One rule: **all ranks call `new_group`, for every group, in the same order**, members or not. A rank that
# skips the call for a group it is not in may hang the others, sometimes, and only on some backends: the
# worst kind of mistake.
#
# **Predict.** Two groups, {0, 1} and {2, 3}, each adds up. Which digits does rank 3 end with?

# %%
def pairs_all_reduce(x):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]  # on all four ranks, in this order
    mine = groups[dist.get_rank() // 2]
    dist.all_reduce(x, group=mine)
    print(f"number {dist.get_rank(mine)} of {dist.get_world_size(mine)} in my group")
    return x


run = show(pairs_all_reduce, own_numbers, "all-reduce in two groups")

# %% [markdown]
# Ranks have two numbers now: rank 2 of the job is number 0 of its group. Arguments such as `src=` and
# `dst=` are the *job's* numbers, even with a `group=`, unless you use `group_src=` and `group_dst=`.

# %% [markdown]
# ## The same, ready made
#
# | what you built | on one tensor, in `torch.distributed` | on lists |
# |---|---|---|
# | broadcast, reduce | `broadcast`, `reduce` (in place) | |
# | scatter, gather | | `scatter`, `gather` |
# | all-reduce | `all_reduce` (in place) | |
# | all-gather | `all_gather_single` (was `all_gather_into_tensor`) | `all_gather` |
# | reduce-scatter | `reduce_scatter_single` (was `reduce_scatter_tensor`) | `reduce_scatter` |
# | all-to-all | `all_to_all_single` | `all_to_all` |
#
# Do they agree with yours? The last cell holds your versions to torch's, on the ranks.

# %%
def same_as_torch():
    rank, world = dist.get_rank(), dist.get_world_size()
    x = marks(rank, 4)
    theirs = x.clone()
    dist.all_reduce(theirs)
    joined = torch.empty(4 * world, dtype=x.dtype)
    dist.all_gather_single(joined, x)
    swapped = torch.empty_like(x)
    dist.all_to_all_single(swapped, x)
    piece = torch.empty(4 // world, dtype=x.dtype)
    dist.reduce_scatter_single(piece, x)
    return {
        "all-reduce": torch.equal(ring_all_reduce(x)[-1], theirs),
        "all-gather": torch.equal(all_gather(x), joined),
        "all-to-all": torch.equal(all_to_all(x), swapped),
        "reduce-scatter": torch.equal(reduce_scatter(x), piece),
    }


for rank, agreed in enumerate(launch(same_as_torch, ranks=RANKS).values):
    words = (f"{name} {'agrees' if same else 'DIFFERS'}" for name, same in agreed.items())
    print(f"rank {rank}:", ", ".join(words))

# %% [markdown]
# ## What to take with you
#
# - A collective is a promise of the whole group: same operation, same order, fitting sizes. Who breaks it
#   makes the others wait.
# - Names tell where the result lands: *all-* means on every rank, *scatter* means in pieces.
# - All-reduce = reduce-scatter + all-gather. The ring sends 2 (p-1)/p of the buffer per rank in 2 (p-1)
#   steps; the tree sends all of it in 2 log2 p rounds.
# - Sending first, all together, is a deadlock. Start the transfers, then wait.
#
# **Next**: [lab 01](../labs/lab01_allreduce/lab01_allreduce.ipynb) asks for these operations from any root,
# with pieces of different sizes and at any number of ranks. [Notebook 03](03_cost_model.ipynb) predicts how
# long they take.
