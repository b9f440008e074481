# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 01: AllReduce
#
# **20 points.** You build the collective operations of distributed training out of the only two things a
# network really has: *send* and *receive*. At the end you own an all-reduce that moves as few bytes as the
# best libraries do, a second one that answers sooner for small tensors, and a model that says which of the
# two to use.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | broadcast, reduce, scatter, gather, all-gather, reduce-scatter, all-to-all | 5 |
# | 2 | the ring: reduce-scatter, all-gather, all-reduce | 8 |
# | 3 | the tree: broadcast and reduce in few rounds | 2 |
# | 4 | the cost model: fit it, predict with it, measure | 3 |
# | 5 | questions | 2 |
#
# *You should have read* notebooks 02 and 03. *Time:* about three hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like.
# - Grading runs the same tests with further sizes, ranks, number types and a rank that comes late. A task
#   that passes here because of what the sizes happen to be will not pass there: read the specification, not
#   only the tests.
# - The tests look at **values**, and also at **how** you got them: who sent to whom, and how many bytes.
#   Right values that did not come by messages score nothing.
# - **You may call** `dist.send`, `dist.recv`, `dist.isend`, `dist.irecv`, `dist.batch_isend_irecv`,
#   `dist.get_rank` and `dist.get_world_size`. **You may not call** a built-in collective (`dist.broadcast`,
#   `dist.all_reduce` and the like): they are what you build.
# - To try something, add a cell: `launch(lambda: my_function(...), ranks=3).values`, or `%%ranks 3` on its
#   first line. `launch(...).trace.plot()` draws who sent what when.
# - When your ranks wait for each other for ever, the launch ends by itself within a second or so and tells
#   you who waits for whom.
#
# **Conventions.** `p` is the *world size* (进程总数), the number of *ranks* (进程编号, here also the
# processes themselves); ranks count from 0 to p-1. `numel` is a tensor's number of elements. "Piece `r` of
# `x`" is `torch.tensor_split(x, p)[r]`: when p does not divide numel, the first pieces are one element
# longer, and a piece may be empty. Every function must work for **any** p, 1 included.
#
# **The caller's memory.** As soon as your function returns, the caller may overwrite the tensors that it
# passed in. So every `isend` must have been waited for (`request.wait()`) before you return, or before you
# write to the memory that it sends from.

# %% shared="imports"
import math

import numpy as np
import torch
import torch.distributed as dist
from torch import bfloat16, float32, float64, int64

from utils import check, launch


def fill(rank: int, numel: int, dtype: torch.dtype = float32, salt: int = 0) -> torch.Tensor:
    """What rank `rank` starts with: small whole numbers that depend on rank and element; all sums are exact.

    >>> fill(0, 3).tolist(), fill(1, 3).tolist()
    ([1.0, 12.0, 23.0], [18.0, 32.0, 46.0])
    """
    i = torch.arange(numel)
    return ((11 * i + 3 * i * rank + 17 * rank + salt * (i + rank * rank + 5)) % 47 + 1).to(dtype)


def fills(ranks: int, numel: int, dtype: torch.dtype = float32, salt: int = 0) -> list[torch.Tensor]:
    """The inputs of all ranks, in rank order."""
    return [fill(rank, numel, dtype, salt) for rank in range(ranks)]


def nbytes(tensors: list[torch.Tensor]) -> int:
    """The bytes of all these tensors together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def column(run, case: int, key: str) -> list:
    """What each rank returned under `key` for case number `case`."""
    return [value[case][key] for value in run.values]


# %% [markdown]
# # Part 1. Collectives from send and receive
#
# A *point-to-point* operation (点对点通信) has one sender and one receiver. A *collective communication*
# (集合通信) is joined by all ranks of a group, each calling the same function in the same order. You write
# seven of them.

# %% [markdown]
# ## broadcast and reduce
#
# **broadcast** (广播). `broadcast(x, src)`: afterwards `x` holds, on every rank, what it held on rank
# `src`. In place; the return value is not looked at.
#
# **reduce** (规约). `reduce(x, dst)`: afterwards `x` on rank `dst` holds the elementwise sum of all ranks'
# `x`. In place on `dst`; on every other rank `x` is **unchanged**.
#
# - `x`: contiguous, any shape, any number type, the same shape and type on all ranks. `src` and `dst` may
#   be any rank.
#
# *Example*, p = 3, `x = [1, 2]`, `[10, 20]`, `[100, 200]`: `broadcast(x, 1)` leaves `[10, 20]` everywhere;
# `reduce(x, 2)` leaves `[1, 2]`, `[10, 20]`, `[111, 222]`.
#
# *Size:* about 7 lines each. Simple is right here; part 3 does it faster.

# %% solution="broadcast"
def broadcast(x: torch.Tensor, src: int) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(x, src)
        return
    for other in range(world):
        if other != src:
            dist.send(x, other)
    ### END SOLUTION


# %% solution="reduce"
def reduce(x: torch.Tensor, dst: int) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(x, dst)
        return
    part = torch.empty_like(x)
    for other in range(world):
        if other != dst:
            dist.recv(part, other)
            x += part
    ### END SOLUTION


# %% test="broadcast_reduce" points=1
def probe_broadcast_reduce(cases):
    results = []
    for root, numel, dtype, salt in cases:
        x = fill(dist.get_rank(), numel, dtype, salt)
        broadcast(x, root)
        received = x.clone()
        x.fill_(99)  # the caller may overwrite x as soon as the call is over
        y = fill(dist.get_rank(), numel, dtype, salt)
        reduce(y, root)
        results.append({"broadcast": received, "reduce": y})
    return results


def verdict_broadcast_reduce(cases, ranks, delay=None):
    run = launch(probe_broadcast_reduce, cases, ranks=ranks, timeout=10, delay=delay)
    least = [0] * ranks
    for case, (root, numel, dtype, salt) in enumerate(cases):
        inputs = fills(ranks, numel, dtype, salt)
        where = f"(numel {numel}, p = {ranks}, root {root})"
        expected = [inputs[root]] * ranks
        got = column(run, case, "broadcast")
        check.ranks_hold(got, expected, f"broadcast {where}", inputs, overwritten=99)
        wanted = [sum(inputs) if rank == root else None for rank in range(ranks)]
        check.ranks_hold(column(run, case, "reduce"), wanted, f"reduce {where}", inputs)
        others = [None if rank == root else inputs[rank] for rank in range(ranks)]
        check.unchanged(column(run, case, "reduce"), others, f"reduce {where}")
        if ranks > 1:  # the root's x reaches each other rank, and the others' sum reaches the root
            least = [needed + nbytes(inputs[:1]) for needed in least]
    check.by_messages(run.trace, "broadcast and reduce", least)


cases = {2: [(1, 4, float32, 0), (0, 1, float32, 1)], 3: [(2, 4, float32, 0), (0, 1, float32, 1)]}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
cases[3] += [(1, 7, float64, 4), (0, 3, bfloat16, 5)]
cases |= {1: [(0, 3, float32, 2)], 4: [(root, 5, int64, 3) for root in range(4)]}
late = {3: {2: 0.02}, 4: {1: 0.02}}
### END HIDDEN TESTS
for ranks in cases:
    verdict_broadcast_reduce(cases[ranks], ranks, late.get(ranks))

# %% [markdown]
# ## scatter and gather
#
# **scatter** (分发). `scatter(out, pieces, src)`: on rank `src`, `pieces` is a list of p tensors, elsewhere
# it is `None`. Afterwards `out` on rank r holds `pieces[r]`, on `src` too. `out` already has the right
# size, which may differ from rank to rank and may be 0.
#
# **gather** (收集). `gather(x, sizes, dst)`: `x` is 1-D with `sizes[r]` elements on rank r, and all ranks
# know `sizes`. On rank `dst` it **returns** the concatenation in rank order; on the others the return value
# is not looked at. `x` is unchanged.
#
# *Example*, p = 3: `scatter(out, [[1, 2], [], [3]], 0)` gives rank 0 `[1, 2]`, rank 1 `[]`, rank 2 `[3]`;
# `gather(out, [2, 0, 1], 1)` then returns `[1, 2, 3]` on rank 1.
#
# *Size:* about 8 lines each.

# %% solution="scatter"
def scatter(out: torch.Tensor, pieces: list[torch.Tensor] | None, src: int) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(out, src)
        return
    out.copy_(pieces[src])
    for other in range(world):
        if other != src:
            dist.send(pieces[other], other)
    ### END SOLUTION


# %% solution="gather"
def gather(x: torch.Tensor, sizes: list[int], dst: int) -> torch.Tensor | None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(x, dst)
        return None
    pieces = [x.new_empty(size) for size in sizes]
    pieces[dst] = x
    for other in range(world):
        if other != dst:
            dist.recv(pieces[other], other)
    return torch.cat(pieces)
    ### END SOLUTION


# %% test="scatter_gather" points=1
def probe_scatter_gather(cases):
    rank, results = dist.get_rank(), []
    for root, sizes, dtype, salt in cases:
        pieces = None
        if rank == root:
            pieces = [fill(piece, size, dtype, salt) for piece, size in enumerate(sizes)]
        out = torch.full((sizes[rank],), 99, dtype=dtype)
        scatter(out, pieces, root)
        received = out.clone()
        for piece in pieces or []:
            piece.fill_(99)
        x = fill(rank, sizes[rank], dtype, salt + 1)
        whole = gather(x, sizes, root)
        results.append({"scatter": received, "gather": whole, "after": x.clone()})
        x.fill_(99)
    return results


def verdict_scatter_gather(cases, ranks, delay=None):
    run = launch(probe_scatter_gather, cases, ranks=ranks, timeout=10, delay=delay)
    least = [0] * ranks
    for case, (root, sizes, dtype, salt) in enumerate(cases):
        where = f"(sizes {sizes}, root {root})"
        pieces = [fill(piece, size, dtype, salt) for piece, size in enumerate(sizes)]
        check.ranks_hold(column(run, case, "scatter"), pieces, f"scatter {where}", unwritten=99)
        inputs = [fill(rank, size, dtype, salt + 1) for rank, size in enumerate(sizes)]
        wanted = [torch.cat(inputs) if rank == root else None for rank in range(ranks)]
        check.ranks_hold(column(run, case, "gather"), wanted, f"gather {where}", inputs, overwritten=99)
        check.unchanged(column(run, case, "after"), inputs, f"gather {where}")
        for rank in range(ranks):
            foreign = [x for other, x in enumerate(inputs) if other != root] if rank == root else [pieces[rank]]
            least[rank] += nbytes(foreign)
    check.by_messages(run.trace, "scatter and gather", least)


cases = {2: [(0, [2, 2], float32, 0), (1, [1, 3], float32, 1)], 3: [(2, [2, 0, 1], float32, 2)]}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
cases[3] += [(1, [0, 5, 2], float64, 5)]
cases |= {1: [(0, [3], float32, 3)], 4: [(root, [4, 1, 0, 2], int64, 4) for root in range(4)]}
late = {3: {1: 0.02}, 4: {3: 0.02}}
### END HIDDEN TESTS
for ranks in cases:
    verdict_scatter_gather(cases[ranks], ranks, late.get(ranks))

# %% [markdown]
# ## all_gather
#
# **all-gather** (全收集, AllGather). `all_gather(x, sizes)`: `x` is 1-D with `sizes[r]` elements on rank r
# (0 is possible), and all ranks know `sizes`. **Returns** the concatenation in rank order, on every rank.
# `x` is unchanged.
#
# *Example*, p = 2: `[1, 0]` and `[3, 4]` give `[1, 0, 3, 4]` on both.
#
# *Size:* about 8 lines. *Careful:* if every rank sends first with the blocking `dist.send`, no rank ever
# receives, and all wait for ever. Start the sends and receives with `isend` and `irecv`, then wait for all
# of them.

# %% solution="all_gather"
def all_gather(x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = [x.new_empty(size) for size in sizes]
    pieces[rank] = x
    others = [other for other in range(world) if other != rank]
    requests = [dist.isend(x, other) for other in others]
    requests += [dist.irecv(pieces[other], other) for other in others]
    for request in requests:
        request.wait()
    return torch.cat(pieces)
    ### END SOLUTION


# %% test="all_gather_values" points=1
def probe_all_gather(cases):
    rank, results = dist.get_rank(), []
    for sizes, dtype, salt in cases:
        x = fill(rank, sizes[rank], dtype, salt)
        whole = all_gather(x, sizes)
        results.append({"whole": whole, "after": x.clone()})
        x.fill_(99)
    return results


def verdict_all_gather(cases, ranks, delay=None):
    run = launch(probe_all_gather, cases, ranks=ranks, timeout=10, delay=delay)
    least = [0] * ranks
    for case, (sizes, dtype, salt) in enumerate(cases):
        inputs = [fill(rank, size, dtype, salt) for rank, size in enumerate(sizes)]
        where = f"all_gather (sizes {sizes})"
        check.ranks_hold(column(run, case, "whole"), [torch.cat(inputs)] * ranks, where, overwritten=99)
        check.unchanged(column(run, case, "after"), inputs, where)
        least = [needed + nbytes(inputs) - nbytes([x]) for needed, x in zip(least, inputs, strict=True)]
    check.by_messages(run.trace, "all_gather", least)


cases = {2: [([2, 2], float32, 0), ([1, 3], float32, 1)], 3: [([2, 0, 1], float32, 2)]}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
cases[3] += [([3, 3, 3], bfloat16, 6), ([0, 0, 2], float64, 7)]
cases |= {1: [([3], float32, 3)], 4: [([4, 1, 0, 2], int64, 4), ([1, 1, 1, 1], int64, 5)]}
late = {3: {0: 0.02}, 4: {2: 0.02}}
### END HIDDEN TESTS
for ranks in cases:
    verdict_all_gather(cases[ranks], ranks, late.get(ranks))

# %% [markdown]
# ## reduce_scatter
#
# **reduce-scatter** (规约分发, ReduceScatter). `reduce_scatter(x)`: `x` is 1-D and has the same size on all
# ranks. **Returns**, on rank r, piece r of the elementwise sum over all ranks. `x` is unchanged.
#
# *Example*, p = 2: `[1, 2, 3]` and `[10, 20, 30]` give `[11, 22]` on rank 0 and `[33]` on rank 1.
#
# *Target:* a rank sends each piece once, and never its own: at most `(p-1) * ceil(numel/p)` elements leave
# a rank. *Size:* about 9 lines.

# %% solution="reduce_scatter"
def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = x.tensor_split(world)
    total = pieces[rank].clone()
    others = [other for other in range(world) if other != rank]
    parts = [torch.empty_like(total) for _ in others]
    requests = [dist.isend(pieces[other], other) for other in others]
    requests += [dist.irecv(part, other) for part, other in zip(parts, others, strict=True)]
    for request in requests:
        request.wait()
    for part in parts:
        total += part
    return total
    ### END SOLUTION


# %% test="reduce_scatter_values" points=1
def probe_reduce_scatter(cases):
    results = []
    for numel, dtype, salt in cases:
        x = fill(dist.get_rank(), numel, dtype, salt)
        piece = reduce_scatter(x)
        results.append({"piece": piece.clone(), "after": x.clone()})
        x.fill_(99)
    return results


def verdict_reduce_scatter(cases, ranks, delay=None):
    run = launch(probe_reduce_scatter, cases, ranks=ranks, timeout=10, delay=delay)
    least, most = [0] * ranks, [0] * ranks
    for case, (numel, dtype, salt) in enumerate(cases):
        inputs = fills(ranks, numel, dtype, salt)
        wanted = list(sum(inputs).tensor_split(ranks))
        own = [x.tensor_split(ranks)[rank] for rank, x in enumerate(inputs)]
        where = f"reduce_scatter (numel {numel}, p = {ranks})"
        check.ranks_hold(column(run, case, "piece"), wanted, where, own, overwritten=99)
        check.unchanged(column(run, case, "after"), inputs, where)
        for rank in range(ranks):
            least[rank] += nbytes([own[rank]]) if ranks > 1 else 0
            most[rank] += (ranks - 1) * math.ceil(numel / ranks) * dtype.itemsize
    check.by_messages(run.trace, "reduce_scatter", least, most, "each piece once, and never its own")


cases = {2: [(4, float32, 0), (5, float32, 1)], 3: [(7, float32, 2)]}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
cases[3] += [(2, bfloat16, 6), (11, float32, 7)]
cases |= {1: [(3, float32, 3)], 4: [(0, float32, 0), (3, int64, 4), (13, float64, 5)]}
late = {3: {2: 0.02}, 4: {1: 0.02}}
### END HIDDEN TESTS
for ranks in cases:
    verdict_reduce_scatter(cases[ranks], ranks, late.get(ranks))

# %% [markdown]
# ## all_to_all
#
# **all-to-all** (全交换). `all_to_all(x, send_sizes, recv_sizes)`: `x` is 1-D. Its first `send_sizes[0]`
# elements are for rank 0, the next `send_sizes[1]` for rank 1, and so on; `recv_sizes[s]` elements come
# from rank s. **Returns** what arrived, in the order of the sending ranks; what a rank sends to itself is
# in it too. `x` is unchanged. Sizes may be 0, and differ from rank to rank. This is how tokens reach their
# experts later on.
#
# *Example*, p = 2. Rank 0: `x = [1, 2, 3]`, send `[1, 2]`, receive `[1, 0]`; rank 1: `x = [4]`, send `[0,
# 1]`, receive `[2, 1]`. Result: `[1]` on rank 0 and `[2, 3, 4]` on rank 1.
#
# *Target:* a rank sends each element at most once, straight to the rank that it is for. *Size:* about 10
# lines.

# %% solution="all_to_all"
def all_to_all(x: torch.Tensor, send_sizes: list[int], recv_sizes: list[int]) -> torch.Tensor:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing = x.split(send_sizes)
    incoming = [x.new_empty(size) for size in recv_sizes]
    incoming[rank] = outgoing[rank]
    others = [other for other in range(world) if other != rank]
    requests = [dist.isend(outgoing[other], other) for other in others]
    requests += [dist.irecv(incoming[other], other) for other in others]
    for request in requests:
        request.wait()
    return torch.cat(incoming)
    ### END SOLUTION


# %% test="all_to_all_values" points=1
def probe_all_to_all(cases):
    rank, results = dist.get_rank(), []
    for table, dtype, salt in cases:  # table[s][d] elements go from rank s to rank d
        x = fill(rank, sum(table[rank]), dtype, salt)
        got = all_to_all(x, list(table[rank]), [row[rank] for row in table])
        results.append({"got": got, "after": x.clone()})
        x.fill_(99)
    return results


def torch_all_to_all(cases):  # runs on ranks of its own, with torch's collective
    rank, results = dist.get_rank(), []
    for table, dtype, salt in cases:
        x, recv_sizes = fill(rank, sum(table[rank]), dtype, salt), [row[rank] for row in table]
        results.append(torch.empty(sum(recv_sizes), dtype=dtype))
        dist.all_to_all_single(results[-1], x, recv_sizes, list(table[rank]))
    return results


def verdict_all_to_all(cases, ranks, delay=None):
    run = launch(probe_all_to_all, cases, ranks=ranks, timeout=10, delay=delay)
    oracle = check.reference(torch_all_to_all, cases, ranks=ranks)
    least, most = [0] * ranks, [0] * ranks
    for case, (table, dtype, salt) in enumerate(cases):
        wanted = [results[case] for results in oracle.values]
        inputs = [fill(rank, sum(row), dtype, salt) for rank, row in enumerate(table)]
        check.ranks_hold(column(run, case, "got"), wanted, f"all_to_all (sizes {table})", overwritten=99)
        check.unchanged(column(run, case, "after"), inputs, f"all_to_all (sizes {table})")
        for rank, row in enumerate(table):
            least[rank] += (len(wanted[rank]) - row[rank]) * dtype.itemsize
            most[rank] += (sum(row) - row[rank]) * dtype.itemsize
    check.by_messages(run.trace, "all_to_all", least, most, "each element once, straight to its rank")


verdict_all_to_all([([[1, 2], [0, 1]], float32, 0), ([[2, 2], [2, 2]], float32, 1)], 2)
verdict_all_to_all([([[1, 1, 1], [1, 1, 1], [1, 1, 1]], float32, 2)], 3)
### BEGIN HIDDEN TESTS
verdict_all_to_all([([[3]], float32, 3)], 1)
verdict_all_to_all([([[0, 4, 1], [2, 0, 0], [3, 1, 2]], int64, 4)], 3, delay={1: 0.02})
table = [[1, 0, 2, 3], [0, 0, 0, 0], [2, 5, 1, 0], [1, 1, 4, 2]]
verdict_all_to_all([(table, float64, 5)], 4, delay={0: 0.02})
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. The ring
#
# With what you have, all-reduce (全规约, AllReduce: the sum of all ranks' tensors, on every rank) is one
# line: reduce to rank 0, then broadcast. But then rank 0 receives p-1 buffers and sends p-1 buffers, and
# everyone waits for its link. A *ring* (环) spreads the work evenly. The buffer is cut into p *chunks*
# (分块), and each rank talks to its two neighbours only:
#
# 1. *reduce-scatter*, p-1 steps. In each step a rank sends one chunk to its right-hand neighbour, receives
#    another chunk from its left-hand neighbour, and adds what came to its own. Each chunk travels once
#    around and collects every rank's share on the way.
# 2. *all-gather*, p-1 steps. The finished chunks travel around once more and overwrite the unfinished ones.
#
# Each step moves 1/p of the buffer, so a rank sends `2(p-1)/p` times the buffer in all: less than twice,
# however many ranks there are.

# %% [markdown]
# ## ring_reduce_scatter
#
# `ring_reduce_scatter(chunks)`: `chunks` is a list of p contiguous 1-D tensors, `chunks[c]` of the same
# size on all ranks; sizes differ between chunks and may be 0. Afterwards `chunks[r]` on rank r holds the
# sum of all ranks' `chunks[r]`, **in place**. The other chunks may hold anything.
#
# *Work out the indices on paper first*, for p = 3. The chunk that rank r must hold in the end is the last
# one that it receives, in step p-2. So which one does it receive in the step before, and which chunk does
# it send in step s? At p = 2 wrong signs give right answers; at 3 they do not.
#
# *Example*, p = 3, each chunk one number; rank 0 `[1, 2, 3]`, rank 1 `[10, 20, 30]`, rank 2 `[100, 200,
# 300]`: at the end rank 0 has `chunks[0] = 111`, rank 1 `chunks[1] = 222`, rank 2 `chunks[2] = 333`.
#
# *Target:* p-1 steps, in each one chunk sent to one neighbour. *Size:* about 9 lines. Left or right round
# the ring is your choice.

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks: list[torch.Tensor]) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    targets = [chunks[(rank - step - 2) % world] for step in range(world - 1)]
    incoming = [torch.empty_like(target) for target in targets]
    receives = [dist.irecv(part, left) for part in incoming]  # all posted ahead: no sender has to wait
    for step in range(world - 1):
        send = dist.isend(chunks[(rank - step - 1) % world], right)
        receives[step].wait()
        targets[step] += incoming[step]
        send.wait()
    ### END SOLUTION


# %% test="ring_reduce_scatter_sums" points=1
def probe_ring_reduce_scatter(cases):
    rank, results = dist.get_rank(), []
    for sizes, dtype, salt in cases:
        chunks = list(fill(rank, sum(sizes), dtype, salt).split(sizes))
        ring_reduce_scatter(chunks)
        results.append({"mine": chunks[rank].clone()})
        for chunk in chunks:
            chunk.fill_(99)
    return results


def verdict_ring_reduce_scatter(cases, ranks, delay=None):
    run = launch(probe_ring_reduce_scatter, cases, ranks=ranks, timeout=10, delay=delay)
    least = [0] * ranks
    for case, (sizes, dtype, salt) in enumerate(cases):
        inputs = fills(ranks, sum(sizes), dtype, salt)
        own = [x.split(sizes)[rank] for rank, x in enumerate(inputs)]
        where = f"ring_reduce_scatter (chunk sizes {sizes})"
        mine, wanted = column(run, case, "mine"), list(sum(inputs).split(sizes))
        check.ranks_hold(mine, wanted, where, own, overwritten=99)
        if ranks > 1:
            least = [needed + nbytes([x]) for needed, x in zip(least, own, strict=True)]
    check.by_messages(run.trace, "ring_reduce_scatter", least)


cases = {2: [([2, 2], float32, 0)], 3: [([1, 1, 1], float32, 1), ([2, 2, 1], float32, 2)]}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
cases[3] += [([0, 0, 1], float32, 6), ([4, 4, 4], bfloat16, 7)]
cases |= {1: [([3], float32, 3)], 4: [([2, 1, 0, 5], int64, 4), ([3, 3, 3, 3], float64, 5)]}
late = {3: {2: 0.02}, 4: {1: 0.02}}
### END HIDDEN TESTS
for ranks in cases:
    verdict_ring_reduce_scatter(cases[ranks], ranks, late.get(ranks))

# %% [markdown]
# ## ring_all_gather
#
# `ring_all_gather(chunks)`: as before, but now `chunks[r]` is finished on rank r and the others hold
# nothing of use. Afterwards all chunks are finished on all ranks, **in place**.
#
# *Example*, p = 3: rank 0 has `[111, ?, ?]`, rank 1 `[?, 222, ?]`, rank 2 `[?, ?, 333]`; at the end all
# have `[111, 222, 333]`.
#
# *Target:* p-1 steps, in each one chunk sent to one neighbour. *Size:* about 7 lines. What came in step s
# goes out in step s+1.

# %% solution="ring_all_gather"
def ring_all_gather(chunks: list[torch.Tensor]) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    receives = [dist.irecv(chunks[(rank - step - 1) % world], left) for step in range(world - 1)]
    for step in range(world - 1):
        send = dist.isend(chunks[(rank - step) % world], right)
        receives[step].wait()
        send.wait()
    ### END SOLUTION


# %% test="ring_all_gather_order" points=1
def probe_ring_all_gather(cases):
    rank, results = dist.get_rank(), []
    for sizes, dtype, salt in cases:
        chunks = [torch.full((size,), 99, dtype=dtype) for size in sizes]
        chunks[rank].copy_(fill(rank, sizes[rank], dtype, salt))
        ring_all_gather(chunks)
        results.append({"all": torch.cat(chunks)})
        for chunk in chunks:
            chunk.fill_(99)
    return results


def verdict_ring_all_gather(cases, ranks, delay=None):
    run = launch(probe_ring_all_gather, cases, ranks=ranks, timeout=10, delay=delay)
    least = [0] * ranks
    for case, (sizes, dtype, salt) in enumerate(cases):
        wanted = torch.cat([fill(rank, size, dtype, salt) for rank, size in enumerate(sizes)])
        where = f"ring_all_gather (chunk sizes {sizes})"
        check.ranks_hold(column(run, case, "all"), [wanted] * ranks, where, unwritten=99)
        for rank, size in enumerate(sizes):
            least[rank] += (sum(sizes) - size) * dtype.itemsize
    check.by_messages(run.trace, "ring_all_gather", least)


cases = {2: [([2, 2], float32, 0)], 3: [([1, 1, 1], float32, 1), ([2, 2, 1], float32, 2)]}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
cases[3] += [([0, 0, 1], float32, 6), ([4, 4, 4], bfloat16, 7)]
cases |= {1: [([3], float32, 3)], 4: [([2, 1, 0, 5], int64, 4), ([3, 3, 3, 3], float64, 5)]}
late = {3: {2: 0.02}, 4: {1: 0.02}}
### END HIDDEN TESTS
for ranks in cases:
    verdict_ring_all_gather(cases[ranks], ranks, late.get(ranks))

# %% [markdown]
# ## ring_all_reduce
#
# `ring_all_reduce(x)`: afterwards `x` holds, on every rank, the elementwise **sum** (not the mean) of all
# ranks' `x`, **in place**, as with `dist.all_reduce`. The return value is not looked at.
#
# - `x` has any shape and number type, the same on all ranks, and any number of elements: 0, 1, fewer than
#   p, not a multiple of p.
# - `x` may be **non-contiguous** (a column, a transpose). Then too the result must be in `x` itself, and
#   memory beside it must not be touched. *Careful:* `.contiguous()`, `.reshape()` and `.flatten()` then
#   make a copy, and a result in the copy does not reach the caller by itself.
# - `x` keeps its number type on the way: whole numbers above 2^53 must come out exact.
#
# *Example*, p = 2: `[1, 2, 3]` and `[4, 5, 6]` become `[5, 7, 9]` on both ranks.
#
# *Target:* a rank sends `2(p-1)/p` times the bytes of `x` (with uneven chunks: a chunk more or less), all
# to **one** neighbour, and receives as many. That is what libraries reach, and less is impossible. *Size:*
# about 8 lines with the two functions above. *Not allowed:* built-in collectives.

# %% solution="ring_all_reduce"
def ring_all_reduce(x: torch.Tensor) -> None:
    ### BEGIN SOLUTION
    flat = x.contiguous().view(-1)  # x itself when it is contiguous, else a copy
    for block in flat.split(2**22):  # a large x in blocks that stay in the cache while they are added
        chunks = list(block.tensor_split(dist.get_world_size()))
        ring_reduce_scatter(chunks)
        ring_all_gather(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
    ### END SOLUTION


# %% test="ring_sum" points=1
def probe_ring_sum(cases):
    results = []
    for numel, dtype, salt, offset in cases:
        x = fill(dist.get_rank(), numel, dtype, salt) + offset
        ring_all_reduce(x)
        results.append({"x": x})
    return results


def torch_all_reduce(numel, dtype, salt, offset):  # runs on ranks of its own, with torch's collective
    x = fill(dist.get_rank(), numel, dtype, salt) + offset
    dist.all_reduce(x)
    return x


def verdict_ring_sum(cases, ranks):
    run = launch(probe_ring_sum, cases, ranks=ranks, timeout=10)
    least = 0
    for case, (numel, dtype, salt, offset) in enumerate(cases):
        inputs = [x + offset for x in fills(ranks, numel, dtype, salt)]
        where = f"ring_all_reduce (numel {numel}, p = {ranks}, {dtype})"
        check.ranks_hold(column(run, case, "x"), [sum(inputs)] * ranks, where, inputs)
        least += nbytes(inputs[:1]) if ranks > 1 else 0
    check.by_messages(run.trace, "ring_all_reduce", [least] * ranks)


cases = {2: [(12, float32, 0, 0)], 4: [(12, float32, 0, 0)]}
### BEGIN HIDDEN TESTS
others = [(24, float64, 9, 2**40), (12, bfloat16, 10, 0), (12, int64, 8, 2**53)]
cases |= {1: others, 3: others, 4: cases[4] + others}
### END HIDDEN TESTS
for ranks in cases:
    verdict_ring_sum(cases[ranks], ranks)
### BEGIN HIDDEN TESTS
run = launch(probe_ring_sum, [(15, float64, 11, 0)], ranks=5, timeout=10)
wanted = check.reference(torch_all_reduce, 15, float64, 11, 0, ranks=5).values
inputs = fills(5, 15, float64, 11)
check.ranks_hold(column(run, 0, "x"), wanted, "ring_all_reduce (numel 15, p = 5)", inputs)
### END HIDDEN TESTS

# %% test="ring_uneven" points=1
def probe_ring_uneven(cases):
    results = []
    for numel, dtype, salt in cases:
        x = fill(dist.get_rank(), numel, dtype, salt)
        ring_all_reduce(x)
        results.append({"x": x})
    return results


def verdict_ring_uneven(cases, ranks):
    run = launch(probe_ring_uneven, cases, ranks=ranks, timeout=10)
    least = 0
    for case, (numel, dtype, salt) in enumerate(cases):
        inputs = fills(ranks, numel, dtype, salt)
        where = f"ring_all_reduce (numel {numel}, p = {ranks}, {dtype})"
        check.ranks_hold(column(run, case, "x"), [sum(inputs)] * ranks, where, inputs)
        least += nbytes(inputs[:1]) if ranks > 1 else 0
    check.by_messages(run.trace, "ring_all_reduce", [least] * ranks)


cases = {2: [(1, float32, 1), (5, float32, 1), (7, float32, 1)]}
cases[3] = cases[2]
### BEGIN HIDDEN TESTS
for ranks in (1, 2, 3, 4):
    there = cases.get(ranks, [])
    numels = {0, 1, ranks - 1, ranks, ranks + 1, 2 * ranks + 3, 31} - {numel for numel, _, _ in there}
    cases[ranks] = there + [(numel, float32, 12) for numel in sorted(numels)]
cases[5] = [(numel, float64, 13) for numel in (1, 4, 6, 13)]
### END HIDDEN TESTS
for ranks in cases:
    verdict_ring_uneven(cases[ranks], ranks)

# %% test="ring_in_place" points=1
def probe_ring_in_place(layouts, dtype, salt):
    results = []
    for layout in layouts:
        memory = fill(dist.get_rank(), 24, dtype, salt)
        x = as_layout(memory, layout)
        ring_all_reduce(x)
        results.append({"x": x.clone(), "memory": memory})
    return results


def as_layout(memory, layout):  # a view into 24 elements of memory
    return {
        "matrix": memory.view(4, 6),
        "column": memory.view(4, 6)[:, 1],
        "transpose": memory.view(4, 6).t(),
        "every third": memory[1::3],
        "block": memory.view(4, 6)[1:3, 2:5],
    }[layout]


def verdict_ring_in_place(layouts, ranks, dtype, salt):
    run = launch(probe_ring_in_place, layouts, dtype, salt, ranks=ranks, timeout=10)
    least = 0
    for case, layout in enumerate(layouts):
        memories = fills(ranks, 24, dtype, salt)
        inputs = [as_layout(memory, layout).clone() for memory in memories]
        for memory in memories:
            as_layout(memory, layout).copy_(sum(inputs))
        where = f"ring_all_reduce (x is a {layout}, p = {ranks})"
        check.ranks_hold(column(run, case, "x"), [sum(inputs)] * ranks, where, inputs)
        check.ranks_hold(column(run, case, "memory"), memories, f"{where}: the memory around x")
        least += nbytes(inputs[:1]) if ranks > 1 else 0
    check.by_messages(run.trace, "ring_all_reduce", [least] * ranks)


verdict_ring_in_place(["matrix", "column"], 2, float32, 2)
### BEGIN HIDDEN TESTS
for ranks in (1, 3, 4):
    verdict_ring_in_place(["matrix", "column", "transpose", "every third", "block"], ranks, float32, 14)
### END HIDDEN TESTS

# %% test="ring_late" points=1
def probe_ring_late(cases, salt):
    results = []
    for numel in cases:  # one call follows the other, and the caller overwrites x at once
        x = fill(dist.get_rank(), numel, float32, salt + numel)
        ring_all_reduce(x)
        results.append({"x": x.clone()})
        x.fill_(99)
    return results


def verdict_ring_late(cases, ranks, salt, late):
    run = launch(probe_ring_late, cases, salt, ranks=ranks, timeout=10, delay={late: 0.02})
    least = 0
    for case, numel in enumerate(cases):
        inputs = fills(ranks, numel, float32, salt + numel)
        where = f"ring_all_reduce (call {case + 1}, numel {numel}, p = {ranks}, rank {late} 20 ms late)"
        check.ranks_hold(column(run, case, "x"), [sum(inputs)] * ranks, where, inputs, overwritten=99)
        least += nbytes(inputs[:1]) if ranks > 1 else 0
    check.by_messages(run.trace, "ring_all_reduce", [least] * ranks)


verdict_ring_late([6, 6], ranks=3, salt=3, late=1)
### BEGIN HIDDEN TESTS
for late in (0, 2):
    verdict_ring_late([9, 9, 4, 9, 4096, 2], ranks=4, salt=15, late=late)
verdict_ring_late([7, 7, 5], ranks=2, salt=16, late=1)
### END HIDDEN TESTS

# %% test="ring_traffic" points=2
def probe_ring_traffic(numel, dtype):
    x = fill(dist.get_rank(), numel, dtype)
    ring_all_reduce(x)


def verdict_ring_traffic(numel, ranks, dtype=float32):
    run = launch(probe_ring_traffic, numel, dtype, ranks=ranks, timeout=10)
    check.ring_traffic(run.trace, numel, dtype.itemsize, ranks)


for ranks in (2, 4):
    verdict_ring_traffic(1200, ranks)
### BEGIN HIDDEN TESTS
verdict_ring_traffic(1200, 1)
verdict_ring_traffic(1201, 3, float64)
verdict_ring_traffic(1203, 4, bfloat16)
verdict_ring_traffic(1200, 5, int64)
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. The tree
#
# For a small tensor the number of bytes hardly matters: each message costs its *latency* (延迟), and the
# ring needs 2(p-1) messages one after the other. A *tree* (树) needs far fewer, since in each round
# everyone who has the data helps.

# %% [markdown]
# ## tree_broadcast and tree_reduce
#
# `tree_broadcast(x, src)` and `tree_reduce(x, dst)` have the same results as `broadcast` and `reduce` of
# part 1 (on ranks other than `dst`, `x` is unchanged), for any p and any `src` or `dst`.
#
# *Broadcast.* Number the ranks from the source: `me = (rank - src) % p`. In round 0, 0 sends to 1. In round
# 1, 0 sends to 2 and 1 sends to 3. In round k each `me < 2^k` sends to `me + 2^k`, if there is one.
# *Reduce* runs the same film backwards: who received now sends its partial sum, and who sent now receives
# and adds.
#
# *Example*, p = 5, src = 0: round 0: 0→1; round 1: 0→2, 1→3; round 2: 0→4.
#
# *Target:* `ceil(log2 p)` rounds (a rank sends at most one and receives at most one message in a round),
# and p-1 messages of the whole tensor in all. *Size:* about 10 lines each. *Not allowed:* built-in
# collectives. *Careful:* a partial sum needs memory of its own where `x` must stay unchanged.

# %% solution="tree_broadcast"
def tree_broadcast(x: torch.Tensor, src: int) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % world
    have = 1  # so many ranks hold the data
    while have < world:
        if me < have and me + have < world:
            dist.send(x, (rank + have) % world)
        elif have <= me < 2 * have:
            dist.recv(x, (rank - have) % world)
        have *= 2
    ### END SOLUTION


# %% solution="tree_reduce"
def tree_reduce(x: torch.Tensor, dst: int) -> None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % world
    total = x if rank == dst else x.clone()
    part = torch.empty_like(x)
    half = 2 ** max(0, math.ceil(math.log2(world)) - 1)
    while half >= 1:
        if half <= me < 2 * half:
            dist.send(total, (rank - half) % world)
            return
        if me + half < world:
            dist.recv(part, (rank + half) % world)
            total += part
        half //= 2
    ### END SOLUTION


# %% test="tree_values" points=1
def probe_tree(cases):
    results = []
    for root, numel, dtype, salt in cases:
        x = fill(dist.get_rank(), numel, dtype, salt)
        tree_broadcast(x, root)
        received = x.clone()
        x.fill_(99)
        y = fill(dist.get_rank(), numel, dtype, salt)
        tree_reduce(y, root)
        results.append({"broadcast": received, "reduce": y.clone()})
        y.fill_(99)
    return results


def verdict_tree(cases, ranks, delay=None):
    run = launch(probe_tree, cases, ranks=ranks, timeout=10, delay=delay)
    least = [0] * ranks
    for case, (root, numel, dtype, salt) in enumerate(cases):
        inputs = fills(ranks, numel, dtype, salt)
        where = f"(numel {numel}, p = {ranks}, root {root})"
        expected = [inputs[root]] * ranks
        got = column(run, case, "broadcast")
        check.ranks_hold(got, expected, f"tree_broadcast {where}", inputs, overwritten=99)
        wanted = [sum(inputs) if rank == root else None for rank in range(ranks)]
        check.ranks_hold(column(run, case, "reduce"), wanted, f"tree_reduce {where}", inputs)
        others = [None if rank == root else inputs[rank] for rank in range(ranks)]
        check.unchanged(column(run, case, "reduce"), others, f"tree_reduce {where}")
        if ranks > 1:  # the root's x reaches each other rank, and the others' sum reaches the root
            least = [needed + nbytes(inputs[:1]) for needed in least]
    check.by_messages(run.trace, "tree_broadcast and tree_reduce", least)


cases = {
    1: [(0, 4, float32, 0), (0, 3, float32, 1)],
    2: [(0, 4, float32, 0), (1, 3, float32, 1)],
    4: [(0, 4, float32, 0), (3, 3, float32, 1)],
}
late = {}  # by world size: seconds that a rank starts late
### BEGIN HIDDEN TESTS
for ranks in (2, 3, 4):
    cases[ranks] = cases.get(ranks, []) + [(root, 5, int64, 17 + root) for root in range(ranks)]
    late[ranks] = {ranks - 1: 0.02}
cases[5] = [(3, 3, float64, 21), (0, 0, float32, 0), (1, 1, bfloat16, 22)]
### END HIDDEN TESTS
for ranks in cases:
    verdict_tree(cases[ranks], ranks, late.get(ranks))

# %% test="tree_rounds" points=1
def probe_trees(root):
    tree_broadcast(fill(dist.get_rank(), 100), root)
    dist.barrier()  # marks in the trace where one ends and the other begins
    tree_reduce(fill(dist.get_rank(), 100), root)


def verdict_tree_rounds(root, ranks):
    run = launch(probe_trees, root, ranks=ranks, timeout=10)
    before, after = check.parts(run.trace, "probe_trees")
    check.tree_rounds(before, ranks, 400, "tree_broadcast")  # 100 float32 are 400 bytes
    check.tree_rounds(after, ranks, 400, "tree_reduce")


verdict_tree_rounds(0, ranks=4)
### BEGIN HIDDEN TESTS
verdict_tree_rounds(2, ranks=5)
verdict_tree_rounds(1, ranks=6)
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. The cost model
#
# One message of n bytes takes about `T = alpha + n * beta` seconds: *alpha* is the start-up latency
# (启动延迟) in seconds, *beta* the time for one more byte, in **seconds per byte**; the *bandwidth* (带宽)
# is 1/beta. The model leaves out congestion and topology, and the additions. It is good enough to choose an
# algorithm.

# %% [markdown]
# ## fit_alpha_beta
#
# `fit_alpha_beta(nbytes, seconds)`: two lists of equal length, at least two different sizes. **Returns**
# `(alpha, beta)`, the numbers that make the sum of `(alpha + nbytes[i] * beta - seconds[i])**2` smallest
# **among all with alpha >= 0 and beta >= 0** (a negative latency means nothing).
#
# *Example:* `fit_alpha_beta([0, 1000, 2000], [5e-05, 6e-05, 7e-05])` gives `(5e-05, 1e-08)`: 50
# microseconds and 100 MB/s (1 MB is 10^6 bytes here).
#
# *Careful:* when the best line has a negative alpha, setting alpha to 0 and keeping beta is not the best
# fit: with alpha = 0 another beta is best. *Size:* about 10 lines. numpy's functions are allowed.

# %% solution="fit_alpha_beta"
def fit_alpha_beta(nbytes: list[float], seconds: list[float]) -> tuple[float, float]:
    ### BEGIN SOLUTION
    n, t = np.asarray(nbytes, dtype=float), np.asarray(seconds, dtype=float)
    spread = n - n.mean()
    beta = (spread @ t) / (spread @ spread)
    alpha = t.mean() - beta * n.mean()
    if alpha < 0:  # the best line through the origin
        alpha, beta = 0.0, (n @ t) / (n @ n)
    if beta < 0:  # the best horizontal line
        alpha, beta = t.mean(), 0.0
    return float(alpha), float(beta)
    ### END SOLUTION


# %% test="fit_line" points=1
def probe_fit(cases):
    return [fit_alpha_beta(list(nbytes), list(seconds)) for nbytes, seconds, _ in cases]


def verdict_fit(cases, lines):
    run = launch(probe_fit, cases, ranks=None, timeout=10)
    for got, (_, _, what), (alpha, beta) in zip(run.value, cases, lines, strict=True):
        got_alpha, got_beta = check.numbers(got, 2, f"fit_alpha_beta ({what})")
        check.number(got_alpha, alpha, f"alpha ({what})", "s", rel=1e-6, floor=1e-12)
        check.number(got_beta, beta, f"beta ({what})", "s/byte", rel=1e-6, floor=1e-18)


noisy = [51e-06, 58e-06, 72e-06, 79e-06]
cases = [([0, 1000, 2000], [5e-05, 6e-05, 7e-05], "points on a line")]
cases += [([0, 1000, 2000, 3000], noisy, "noisy points")]
wanted = [(5e-05, 1e-08), (5.03e-05, 9.8e-09)]
### BEGIN HIDDEN TESTS
def best_line(nbytes, seconds, _):  # numpy's least squares, on each set of terms that may be kept
    n, t = np.array(nbytes, dtype=float), np.array(seconds)
    both = np.linalg.lstsq(np.stack([np.ones_like(n), n / n.max()], 1), t, rcond=None)[0] / [1, n.max()]
    through_origin = np.array([0, np.linalg.lstsq(n[:, None], t, rcond=None)[0][0]])
    allowed = [line for line in (both, through_origin, np.array([t.mean(), 0])) if line.min() >= 0]
    return min(allowed, key=lambda line: np.square(line[0] + n * line[1] - t).sum())


exact = [2**k for k in range(4, 25, 4)]
wobble = [1.08, 0.95, 1.02, 0.9, 1.1, 0.97]
others = [
    (exact, [3e-05 + 4e-10 * n for n in exact], "six points on a line"),
    (exact, [(3e-05 + 4e-10 * n) * w for n, w in zip(exact, wobble, strict=True)], "six noisy points"),
    ([1000, 2000, 4000], [1e-06, 3e-06, 8e-06], "the unbounded line has a negative alpha"),
    ([1000, 2000, 4000], [9e-06, 8e-06, 5e-06], "the unbounded line has a negative beta"),
]
cases, wanted = cases + others, wanted + [best_line(*case) for case in others]
### END HIDDEN TESTS
verdict_fit(cases, wanted)

# %% [markdown]
# ## ring_seconds, tree_seconds, crossover_bytes
#
# Predict from alpha and beta, for a tensor of `nbytes` bytes on `world` ranks:
#
# - `ring_seconds(nbytes, world, alpha, beta)`: 2(p-1) steps one after the other, in each a message of
#   `nbytes / p` bytes (take the chunks as equal).
# - `tree_seconds(nbytes, world, alpha, beta)`: tree_reduce, then tree_broadcast: `2 * ceil(log2 p)` rounds,
#   in each a message of `nbytes` bytes.
# - `crossover_bytes(world, alpha, beta)`: the size in **bytes**, as a float, at which both take the same
#   time: the tree is quicker below, the ring above. Where the ring is never slower, return 0.0. (beta is
#   greater than 0.)
#
# *Example*, `world=2, alpha=1, beta=1, nbytes=10`: ring 2 * (1 + 5) = 12, tree 2 * (1 + 10) = 22. With
# `world=4, alpha=10, beta=1` they cross at 8 bytes: ring 6 * (10 + 2) = 72, tree 4 * (10 + 8) = 72.
#
# *Size:* 2, 2 and about 5 lines. Solve for the crossover on paper.

# %% solution="ring_seconds"
def ring_seconds(nbytes: float, world: int, alpha: float, beta: float) -> float:
    ### BEGIN SOLUTION
    return 2 * (world - 1) * (alpha + nbytes / world * beta)
    ### END SOLUTION


# %% solution="tree_seconds"
def tree_seconds(nbytes: float, world: int, alpha: float, beta: float) -> float:
    ### BEGIN SOLUTION
    return 2 * math.ceil(math.log2(world)) * (alpha + nbytes * beta)
    ### END SOLUTION


# %% solution="crossover_bytes"
def crossover_bytes(world: int, alpha: float, beta: float) -> float:
    ### BEGIN SOLUTION
    rounds, steps = math.ceil(math.log2(world)), world - 1
    if steps <= rounds:  # no extra latency in the ring: it is never slower
        return 0.0
    return alpha * (steps - rounds) / (beta * (rounds - steps / world))
    ### END SOLUTION


# %% test="predict" points=1
def probe_predict(cases):
    return [
        [ring_seconds(n, p, a, b), tree_seconds(n, p, a, b), crossover_bytes(p, a, b)] for n, p, a, b in cases
    ]


def verdict_predict(cases, wanted):
    run = launch(probe_predict, cases, ranks=None, timeout=10)
    for got, (n, p, a, b), want in zip(run.value, cases, wanted, strict=True):
        ring, tree, crossing = check.numbers(got, 3, "the predictions")
        where = f"(nbytes {n}, p = {p}, alpha {a}, beta {b})"
        check.number(ring, want[0], f"ring_seconds {where}", "s", rel=1e-6)
        check.number(tree, want[1], f"tree_seconds {where}", "s", rel=1e-6)
        check.number(crossing, want[2], f"crossover_bytes {where}", "bytes", rel=1e-6)


cases, wanted = [(10, 2, 1, 1), (8, 4, 10, 1)], [(12, 22, 0), (72, 72, 8)]
### BEGIN HIDDEN TESTS
def model_times(n, p, a, b):  # step by step, from the description of the two algorithms
    rounds = len(bin(p - 1)) - 2 if p > 1 else 0
    return sum(a + n * b / p for _ in range(2 * (p - 1))), sum(a + n * b for _ in range(2 * rounds))


def model_crossing(p, a, b):  # by halving the interval in which the two curves change places
    low, high = 0.0, 1e15
    for _ in range(200):
        middle = (low + high) / 2
        ring, tree = model_times(middle, p, a, b)
        low, high = (middle, high) if tree < ring else (low, middle)
    return high if high > 1e-6 else 0.0


others = [(2**20, p, 3e-05, 4e-10) for p in (1, 2, 3, 4, 5, 8, 13, 64)]
others += [(1000, 8, 2e-06, 1e-11), (0, 6, 1e-05, 1e-09)]
wanted += [(*model_times(*case), model_crossing(*case[1:])) for case in others]
cases += others
### END HIDDEN TESTS
verdict_predict(cases, wanted)

# %% [markdown]
# ## Measure it
#
# The next cell is not graded. It measures one message between two ranks, fits the model, predicts both
# all-reduces on four ranks, and then measures yours (the fastest of several tries; bars reach up to the
# median). *Before you run it, say what you expect: which curve is lower on the left, and where do they
# cross?*
#
# With few cores the measured curves lie above the predicted ones, and they may not cross at all: four ranks
# share the cores, so their messages do not travel at the same time, and the model knows one lonely message.
# Notebook 03 shows how to give the model the link as it is used.

# %%
from utils.measure import time_on_ranks
from utils.pictures.curves import draw_times, size_label, time_label

SIZES = [2**k for k in range(6, 23, 2)]  # bytes


def tree_all_reduce(x):
    tree_reduce(x, 0)
    tree_broadcast(x, 0)


def there_and_back(x):
    if dist.get_rank() == 0:
        dist.send(x, 1)
        dist.recv(x, 1)
    else:
        dist.recv(x, 0)
        dist.send(x, 0)


def tries_by_size(operation):
    return [time_on_ranks(operation, torch.ones(size // 4), tries=9) for size in SIZES]


def measure_and_plot():
    message = launch(tries_by_size, there_and_back, ranks=2, trace=False).values[0]
    alpha, beta = fit_alpha_beta(SIZES, [min(tries) / 2 for tries in message])
    print(f"alpha {time_label(alpha)}, beta {beta:.2e} s/byte")
    print(f"predicted: the curves cross at {crossover_bytes(4, alpha, beta):.0f} bytes")
    measured_times, predicted_times, fastest = {}, {}, []
    for name, operation, model in (
        ("ring", ring_all_reduce, ring_seconds),
        ("tree", tree_all_reduce, tree_seconds),
    ):
        tries = launch(tries_by_size, operation, ranks=4, trace=False).values[0]
        measured_times[name] = (SIZES, tries)
        predicted_times[name] = (SIZES, [model(size, 4, alpha, beta) for size in SIZES])
        fastest.append([min(seconds) for seconds in tries])
    ring_wins = [size_label(n) for n, ring, tree in zip(SIZES, *fastest, strict=True) if ring < tree]
    print(f"measured: the ring is quicker at {', '.join(ring_wins) or 'none of these sizes'}")
    draw_times(measured_times, predicted_times, title="All-reduce on 4 ranks")


measure_and_plot()

# %% [markdown]
# ## measured
#
# Write down what you read off. Keys: `"alpha"` in seconds, `"beta"` in seconds per byte,
# `"predicted_bytes"` (the predicted crossover on 4 ranks) and `"measured_bytes"` (about where your two
# measured curves cross, or `None` if they do not). Only the form is graded, and that the prediction follows
# from your alpha and beta: machines differ.

# %% solution="measured"
def measured() -> dict:
    ### BEGIN SOLUTION
    return {"alpha": 6.0e-05, "beta": 8.0e-10, "predicted_bytes": 60000, "measured_bytes": 32768}
    ### END SOLUTION


# %% test="measured_form" points=1
answer = check.answer(launch(lambda: measured(), ranks=None, timeout=10).value, "measured")
for key in ("alpha", "beta", "predicted_bytes"):
    check.has_number(answer, key, "measured")
if answer.get("measured_bytes", 0) is not None:
    check.has_number(answer, "measured_bytes", "measured")
### BEGIN HIDDEN TESTS
check.between(answer["alpha"], 1e-7, 0.1, "alpha", "s")
check.between(answer["beta"], 1e-13, 1e-6, "beta", "s/byte")
crossing = 0.8 * answer["alpha"] / answer["beta"]  # where 6 (alpha + n beta / 4) = 4 (alpha + n beta)
check.number(answer["predicted_bytes"], crossing, "predicted_bytes for your alpha, beta", "bytes", rel=0.05)
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. Questions
#
# The visible tests show only whether your answer has the right form.

# %% [markdown]
# ## question_results
#
# Return a dictionary of lists of whole numbers.
#
# 1. Two ranks hold the gradient shards `g0 = [1, 2, 3]` and `g1 = [4, 5, 6]`. What does each rank hold
#    after a sum all-reduce (`"all_reduce"`), and what after an all-gather (`"all_gather"`)?
# 2. Four ranks hold `[1, 0]`, `[0, 2]`, `[3, 0]` and `[0, 4]`. What does each hold after a sum all-reduce
#    (`"four_ranks"`)?
# 3. The two ranks of question 1 do a reduce-scatter instead, with pieces as in this lab. What does rank 0
#    (`"reduce_scatter_0"`), what does rank 1 (`"reduce_scatter_1"`) get?

# %% solution="question_results"
def question_results() -> dict[str, list[int]]:
    ### BEGIN SOLUTION
    return {
        "all_reduce": [5, 7, 9],
        "all_gather": [1, 2, 3, 4, 5, 6],
        "four_ranks": [4, 6],
        "reduce_scatter_0": [5, 7],
        "reduce_scatter_1": [9],
    }
    ### END SOLUTION


# %% test="question_results_values" points=1
answer = check.answer(launch(lambda: question_results(), ranks=None, timeout=10).value, "question_results")
for key in ("all_reduce", "all_gather", "four_ranks", "reduce_scatter_0", "reduce_scatter_1"):
    check.has_list_of_ints(answer, key, "question_results")
### BEGIN HIDDEN TESTS
def torch_results():  # runs on ranks of its own, with torch's collectives
    shard = torch.tensor([[1, 2, 3], [4, 5, 6]][dist.get_rank()])
    total, parts = shard.clone(), [torch.empty_like(shard) for _ in range(2)]
    dist.all_reduce(total)
    dist.all_gather(parts, shard)
    return {"all_reduce": total.tolist(), "all_gather": torch.cat(parts).tolist()}


def torch_four():
    x = torch.tensor([[1, 0], [0, 2], [3, 0], [0, 4]][dist.get_rank()])
    dist.all_reduce(x)
    return x.tolist()


two = check.reference(torch_results, ranks=2).values[0]
pieces = [piece.tolist() for piece in torch.tensor(two["all_reduce"]).tensor_split(2)]
wanted = {**two, "four_ranks": check.reference(torch_four, ranks=4).values[0]}
wanted |= {"reduce_scatter_0": pieces[0], "reduce_scatter_1": pieces[1]}
check.answers_agree(answer, wanted, "question_results")
### END HIDDEN TESTS

# %% [markdown]
# ## question_causes
#
# Return a dictionary with one letter, as a string, for each key.
#
# `"why_not_reduce"`: data parallelism (数据并行) synchronises gradients with all-reduce and not with
# reduce, because
#
# - A: reduce moves more bytes than all-reduce.
# - B: reduce can only take the maximum, and gradients must be added.
# - C: every rank updates its own copy of the parameters and so needs the same summed gradient; reduce gives
#   it to one rank only.
# - D: reduce needs all gradients on one rank before it starts, all-reduce does not wait for anyone.
#
# `"all_reduce"`, `"all_gather"`, `"reduce_scatter"`: where does the result land?
#
# - A: all ranks hold the same reduced tensor.
# - B: one rank holds the reduced tensor.
# - C: each rank holds one piece of the reduced tensor.
# - D: all ranks hold the same concatenation of all ranks' pieces; nothing was added.
#
# `"use_all_reduce"`, `"use_all_gather"`, `"use_reduce_scatter"`: which job is each of them made for?
#
# - A: before a layer runs, put its parameters together from the shards on all ranks.
# - B: after the backward pass, sum the gradients, and every rank keeps only the part whose optimizer state
#   it owns.
# - C: after the backward pass, give every rank the same summed gradient for its full copy of the model.
#
# Four ranks agreed on an all-reduce. Ranks 0, 1 and 2 have entered it; rank 3 is still in the computation
# before it.
#
# `"late_seen"`: what do you see?
#
# - A: ranks 0, 1 and 2 finish with the sum of three tensors.
# - B: ranks 0, 1 and 2 wait; if rank 3 never comes it ends as a hang or a timeout, reported by ranks that
#   did nothing wrong.
# - C: rank 3 is told by the others to stop its computation.
# - D: ranks 0, 1 and 2 go on to the next step, and the all-reduce is repeated later.
#
# `"late_look"`: where do you look first?
#
# - A: at the rank whose log shows the timeout first.
# - B: at the network card of rank 0.
# - C: at the number of bytes in the all-reduce.
# - D: at the first rank that did not reach the all-reduce: its computation before it, a crash, a branch,
#   another order of operations.

# %% solution="question_causes"
def question_causes() -> dict[str, str]:
    ### BEGIN SOLUTION
    return {
        "why_not_reduce": "C",
        "all_reduce": "A",
        "all_gather": "D",
        "reduce_scatter": "C",
        "use_all_reduce": "C",
        "use_all_gather": "A",
        "use_reduce_scatter": "B",
        "late_seen": "B",
        "late_look": "D",
    }
    ### END SOLUTION


# %% test="question_causes_letters" points=1
answer = check.answer(launch(lambda: question_causes(), ranks=None, timeout=10).value, "question_causes")
for key in ("why_not_reduce", "all_reduce", "all_gather", "reduce_scatter", "late_seen", "late_look"):
    check.has_letter(answer, key, "ABCD", "question_causes")
for key in ("use_all_reduce", "use_all_gather", "use_reduce_scatter"):
    check.has_letter(answer, key, "ABC", "question_causes")
### BEGIN HIDDEN TESTS
wanted = {"why_not_reduce": "C", "all_reduce": "A", "all_gather": "D", "reduce_scatter": "C"}
wanted |= {"use_all_reduce": "C", "use_all_gather": "A", "use_reduce_scatter": "B"}
wanted |= {"late_seen": "B", "late_look": "D"}
check.answers_agree(answer, wanted, "question_causes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - An all-reduce is a reduce-scatter and an all-gather. A ring does both with `2(p-1)/p` of the bytes per
#   rank; no algorithm moves less.
# - The ring pays 2(p-1) latencies, the tree `2 ceil(log2 p)`. So small tensors go by tree and large ones by
#   ring, and libraries switch between them by size.
# - When ranks hang, look for the first rank that is *missing*, not for the one that complains.
