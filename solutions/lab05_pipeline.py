# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 05: Pipeline
#
# **20 points.** A model that does not fit on one card is cut by depth: each rank holds some consecutive
# layers, a *stage* (流水线阶段). You write the schedules that say who works on what and when, the formulas
# that say how much time is lost, and the engine that runs any schedule on ranks and ends with exactly the
# gradients of the whole model in one process.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | schedules as data: GPipe, 1F1B, both with several stages on a rank | 5 |
# | 2 | how long it takes: unequal stages, the bubble, where to cut | 3 |
# | 3 | the engine: run a schedule on ranks | 8 |
# | 4 | a tied embedding on two ranks | 1 |
# | 5 | measure it | 1 |
# | 6 | questions | 2 |
#
# *You should have read* notebook 07. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like.
# - Grading runs the same tests with further sizes and with ranks that are late. Read the specification, not
#   only the tests.
# - The tests look at **values** and at **how**: which messages went between which ranks and how many bytes,
#   in which order the stages ran, how many micro-batches' activations were alive at once.
# - **You may call** `dist.send`, `dist.recv`, `dist.isend`, `dist.irecv`, `dist.batch_isend_irecv`,
#   `dist.get_rank`, `dist.get_world_size`. **You may not call** built-in collectives or
#   `torch.distributed.pipelining`; the tests see whether its code ran.
# - When your ranks wait for each other for ever, the launch ends by itself and tells you who waits for whom.
#
# ## Words and conventions
#
# - `p` ranks; `m` *micro-batches* (微批次), numbered from 0; stages numbered from 0. **Stage s is on rank
#   s mod p.** With v stages a rank there are v p stages, and rank r has stages r, r + p, r + 2p, ...
# - An **action** is a tuple `(op, stage, micro_batch)`: `("F", 2, 0)` is the forward of micro-batch 0 in
#   stage 2, `("B", 2, 0)` its backward. Short form, torch's: `2F0`, `2B0`.
# - A **schedule** (调度) is a list with one list of actions for each rank. A rank works through its own list
#   in order, and waits where something it needs is not there yet:
#   - F of a stage needs F of the stage before it, of the same micro-batch;
#   - B needs F of the same stage and B of the stage after it, of the same micro-batch.
# - `read_actions` turns the short form into actions, and `play(schedule, forward, backward)` plays a schedule
#   through on paper, without any process: its `.seconds`, `.bubble` and `.spans`. `draw_schedule` draws it.

# %% shared="imports"
import copy
import time
from itertools import combinations, pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils import check, launch
from utils.checks import schedules
from utils.checks.by_hand import watched, written_without
from utils.models import Transformer, TransformerConfig
from utils.schedules import play, read_actions
from utils.stages import StageLog, cut_model

PIPELINING = ("distributed/pipelining/",)  # torch's own, which you may not call

# %% [markdown]
# For example two stages and two micro-batches, where each rank finishes a micro-batch before it begins the
# next. It can run, but look at the idle time:

# %%
one_at_a_time = [read_actions("0F0 0B0 0F1 0B1"), read_actions("1F0 1B0 1F1 1B1")]

from utils.pictures.schedule import draw_schedule

draw_schedule(play(one_at_a_time, forward=1, backward=2), title="one micro-batch at a time")
print(f"{play(one_at_a_time).seconds} units, {play(one_at_a_time).bubble:.0%} of the ranks' time idle")

# %% [markdown]
# # Part 1. Schedules as data
#
# ## gpipe
#
# `gpipe(p, m, v=1)` returns the schedule of *GPipe* (Huang et al. 2019): on every rank first all forwards, then
# all backwards. With v > 1 stages on a rank (torch calls it looped BFS) all m micro-batches go forward through a
# rank's first stage, then all through its second, and so on; backward through its last stage first.
# Micro-batches go forward in the order 0, 1, ..., m-1; the order of the backwards is yours, the same on all
# ranks.
#
# *Example*, p = 2, m = 2: rank 0 `0F0 0F1 0B0 0B1`, rank 1 `1F0 1F1 1B0 1B1`, that is
# `[[("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)], [("F", 1, 0), ...]]`. With v = 2 rank 0 has `0F0 0F1
# 2F0 2F1 2B0 2B1 0B0 0B1`.
#
# *Target:* where F of a stage costs 1 and B costs 2, it takes 3 (m v + p - 1) (for m >= p, if v > 1).
# *Size:* about 5 lines.

# %% solution="gpipe"
def gpipe(p: int, m: int, v: int = 1) -> list[list[tuple[str, int, int]]]:
    ### BEGIN SOLUTION
    schedule = []
    for rank in range(p):
        stages = range(rank, p * v, p)
        forward = [("F", stage, k) for stage in stages for k in range(m)]
        schedule.append(forward + [("B", stage, k) for stage in reversed(stages) for k in range(m)])
    return schedule
    ### END SOLUTION


# %% test="gpipe_order" points=1
def probe_gpipe(cases):
    return watched(lambda: [gpipe(*case) for case in cases])


def verdict_gpipe(cases):
    results, files = launch(probe_gpipe, cases, ranks=None, timeout=10).value
    written_without(files, PIPELINING, "gpipe")
    for (p, m, v), got in zip(cases, results, strict=True):
        actions = schedules.schedule(got, p, m, "gpipe", chunks=v)
        where = schedules.case_text("gpipe", p, m, v)
        for rank, own in enumerate(actions):
            first = "".join(op for op, _, _ in own)[: m * v]
            said = f"{where}: rank {rank} has a B among its first {m * v} actions; all F come first."
            assert first == "F" * (m * v), said
        if v == 1 or m >= p:
            schedules.schedule_seconds(actions, 3 * (m * v + p - 1), where)


verdict_gpipe([(2, 2, 1), (3, 4, 1), (2, 2, 2)])
### BEGIN HIDDEN TESTS
verdict_gpipe([(1, 1, 1), (1, 3, 1), (2, 1, 1), (4, 2, 1), (4, 8, 1), (5, 3, 1)])
verdict_gpipe([(1, 2, 3), (2, 3, 2), (4, 5, 2), (3, 3, 3), (3, 2, 2)])
### END HIDDEN TESTS

# %% [markdown]
# ## one_f_one_b
#
# GPipe keeps the activations of all m micro-batches until the backwards begin. *1F1B* (PipeDream-Flush) takes
# just as long and keeps fewer: it begins a backward as early as it can. `one_f_one_b(p, m)` returns it: one
# stage a rank; after some warm-up forwards a rank does one forward and one backward in turn, and at the end
# the remaining backwards. Micro-batches go forward in order, and backward in order.
#
# - *In flight* (在途): micro-batches for which the rank has run F and not yet B. **Rank r never has more than
#   min(m, p - r) in flight.**
# - It takes as long as GPipe, 3 (m + p - 1) where F costs 1 and B costs 2.
# - m may be smaller than p.
#
# *Example*, p = 3, m = 4:
#
#     rank 0: 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3
#     rank 1: 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3
#     rank 2: 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
#
# *Size:* about 8 lines.

# %% solution="one_f_one_b"
def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    ### BEGIN SOLUTION
    schedule = []
    for rank in range(p):
        warm_up = min(m, p - 1 - rank)
        actions = [("F", rank, k) for k in range(warm_up)]
        for k in range(m - warm_up):
            actions += [("F", rank, warm_up + k), ("B", rank, k)]
        schedule.append(actions + [("B", rank, k) for k in range(m - warm_up, m)])
    return schedule
    ### END SOLUTION


# %% test="one_f_one_b_order" points=1
def probe_order(cases):
    return watched(lambda: [one_f_one_b(p, m) for p, m in cases])


def verdict_order(cases):
    results, files = launch(probe_order, cases, ranks=None, timeout=10).value
    written_without(files, PIPELINING, "one_f_one_b")
    for (p, m), got in zip(cases, results, strict=True):
        actions = schedules.schedule(got, p, m, "one_f_one_b")
        schedules.schedule_seconds(actions, 3 * (m + p - 1), schedules.case_text("one_f_one_b", p, m))


verdict_order([(2, 4), (3, 4)])
### BEGIN HIDDEN TESTS
verdict_order([(1, 1), (1, 3), (2, 1), (4, 1), (4, 2), (4, 3), (5, 2), (4, 8), (8, 16)])
### END HIDDEN TESTS

# %% test="one_f_one_b_in_flight" points=1
def probe_in_flight(cases):
    return [one_f_one_b(p, m) for p, m in cases]


def verdict_in_flight(cases):
    run = launch(probe_in_flight, cases, ranks=None, timeout=10)
    for (p, m), got in zip(cases, run.value, strict=True):
        actions = schedules.schedule(got, p, m, "one_f_one_b")
        most = [min(m, p - rank) for rank in range(p)]
        schedules.in_flight(actions, most, schedules.case_text("one_f_one_b", p, m))


verdict_in_flight([(2, 4), (3, 4)])
### BEGIN HIDDEN TESTS
verdict_in_flight([(1, 3), (2, 1), (4, 4), (4, 8), (8, 16)])
### END HIDDEN TESTS

# %% [markdown]
# ## interleaved
#
# The pipeline fills faster when stages are smaller. *Interleaved 1F1B* (交错调度; Narayanan et al. 2021) gives
# each rank v stages of a v-th of the layers: rank r has stages r, r + p, ..., r + (v-1) p, and a micro-batch
# goes round the ranks v times. `interleaved(p, m, v)` returns it; m is a multiple of p, v is at least 2.
#
# - A rank takes micro-batches in groups of p: the p micro-batches of a group go forward through its first
#   stage, then through its second, ..., then comes the next group. Backwards likewise, last stage first.
# - Rank r begins with `2 (p - 1 - r) + (v - 1) p` warm-up forwards (all m v, if there are fewer), then one
#   forward and one backward in turn, then the remaining backwards.
#
# *Example*, p = 2, m = 2, v = 2:
#
#     rank 0: 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
#     rank 1: 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
#
# *Target:* where F costs 1 and B costs 2 **for a stage of this size**, it takes 3 (m v + p - 1): the ranks
# idle for 3 (p - 1) small units, a v-th of what 1F1B with v times larger stages loses. Rank r has at most
# `2 (p - 1 - r) + (v - 1) p + 1` stage inputs in flight. Another order that keeps both targets is right, too.
#
# *Size:* about 15 lines.

# %% solution="interleaved"
def interleaved(p: int, m: int, v: int) -> list[list[tuple[str, int, int]]]:
    ### BEGIN SOLUTION
    def action(op, rank, index):
        group, place = divmod(index, p * v)
        chunk, within = divmod(place, p)
        chunk = chunk if op == "F" else v - 1 - chunk
        return op, rank + chunk * p, group * p + within

    schedule = []
    for rank in range(p):
        warm_up = min(m * v, 2 * (p - 1 - rank) + (v - 1) * p)
        actions = [action("F", rank, index) for index in range(warm_up)]
        for index in range(m * v - warm_up):
            actions += [action("F", rank, warm_up + index), action("B", rank, index)]
        schedule.append(actions + [action("B", rank, index) for index in range(m * v - warm_up, m * v)])
    return schedule
    ### END SOLUTION


# %% test="interleaved_order" points=1
def probe_interleaved(cases):
    return watched(lambda: [interleaved(p, m, v) for p, m, v in cases])


def verdict_interleaved(cases):
    results, files = launch(probe_interleaved, cases, ranks=None, timeout=10).value
    written_without(files, PIPELINING, "interleaved")
    for (p, m, v), got in zip(cases, results, strict=True):
        schedules.schedule(got, p, m, "interleaved", chunks=v)


verdict_interleaved([(2, 2, 2), (2, 4, 2)])
### BEGIN HIDDEN TESTS
verdict_interleaved([(1, 3, 2), (3, 3, 2), (3, 6, 3), (4, 4, 2), (4, 8, 4)])
### END HIDDEN TESTS

# %% test="interleaved_bubble" points=1
def probe_interleaved_bubble(cases):
    return [interleaved(p, m, v) for p, m, v in cases]


def verdict_interleaved_bubble(cases):
    run = launch(probe_interleaved_bubble, cases, ranks=None, timeout=10)
    for (p, m, v), got in zip(cases, run.value, strict=True):
        where = schedules.case_text("interleaved", p, m, v)
        actions = schedules.schedule(got, p, m, "interleaved", chunks=v)
        schedules.schedule_seconds(actions, 3 * (m * v + p - 1), where)
        most = [2 * (p - 1 - rank) + (v - 1) * p + 1 for rank in range(p)]
        schedules.in_flight(actions, most, where)


verdict_interleaved_bubble([(2, 2, 2), (2, 4, 2)])
### BEGIN HIDDEN TESTS
verdict_interleaved_bubble([(1, 3, 2), (3, 3, 2), (3, 6, 3), (4, 4, 2), (4, 8, 4), (4, 16, 2)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. How long it takes
#
# ## step_seconds
#
# Stages are seldom equal. `step_seconds(forward, backward, m)` predicts the time of one GPipe step:
# `forward[s]` and `backward[s]` are the seconds that one micro-batch takes in stage s, messages cost nothing.
#
# *Example:* `step_seconds([1, 1], [2, 2], 2)` is 9; `step_seconds([1, 3], [2, 4], 2)` is 17: the slow stage
# sets the pace, and the other one waits for it.
#
# No loop over micro-batches, no simulation: find the formula. (Ask: when does the slowest stage begin, and
# what comes after its last micro-batch?) *Size:* about 3 lines.

# %% solution="step_seconds"
def step_seconds(forward: list[float], backward: list[float], m: int) -> float:
    ### BEGIN SOLUTION
    return sum(sum(costs) + (m - 1) * max(costs) for costs in (forward, backward))
    ### END SOLUTION


# %% test="step_seconds_value" points=1
def probe_seconds(cases):
    return [step_seconds(list(forward), list(backward), m) for forward, backward, m in cases]


def one_way(costs, m):
    """The oracle: m micro-batches, one after the other, through stages that begin when they are free."""
    ends = [0] * len(costs)
    for _ in range(m):
        arrives = 0
        for stage, cost in enumerate(costs):
            ends[stage] = arrives = max(ends[stage], arrives) + cost
    return ends[-1]


def verdict_seconds(cases):
    run = launch(probe_seconds, cases, ranks=None, timeout=10)
    for got, (forward, backward, m) in zip(run.value, cases, strict=True):
        played = one_way(forward, m) + one_way(backward[::-1], m)
        check.number(got, played, f"step_seconds({forward}, {backward}, {m})", "s", rel=1e-9)


verdict_seconds([([1, 1], [2, 2], 2), ([1, 3], [2, 4], 2)])
### BEGIN HIDDEN TESTS
verdict_seconds([([2], [3], 4), ([1, 1, 1, 1], [2, 2, 2, 2], 8), ([3, 1, 2], [5, 2, 6], 5)])
verdict_seconds([([1, 2, 7, 1], [9, 2, 3, 4], 3), ([0.5, 0.25], [1.5, 0.75], 1), ([4, 1, 1], [1, 1, 8], 2)])
### END HIDDEN TESTS

# %% [markdown]
# ## bubble
#
# The idle time of a pipeline is its *bubble* (流水线气泡). Two definitions are in use, and mixing them up is the
# commonest mistake in this chapter: GPipe's paper counts the idle **share of the total** time, Megatron's the
# idle time **over the ideal** time, the time without any bubble. `bubble(p, m, v=1)` returns both, in this
# order, for equal stages; v > 1 is interleaved 1F1B.
#
# *Example:* `bubble(4, 8)` is (0.2727..., 0.375). *Size:* 2 lines.

# %% solution="bubble"
def bubble(p: int, m: int, v: int = 1) -> tuple[float, float]:
    ### BEGIN SOLUTION
    return (p - 1) / (m * v + p - 1), (p - 1) / (m * v)
    ### END SOLUTION


# %% test="bubble_both" points=1
def probe_bubble(cases):
    return [bubble(*case) for case in cases]


def verdict_bubble(cases, published):
    run = launch(probe_bubble, cases, ranks=None, timeout=10)
    for case, got, (share, over) in zip(cases, run.value, published, strict=True):
        what = f"bubble({', '.join(map(str, case))})"
        numbers = check.numbers(got, 2, what)
        swapped = numbers == [over, share] and share != over
        assert not swapped, f"{what}: the two definitions are the wrong way round; the share of the total is first."
        check.number(numbers[0], share, f"{what}, idle share of the total,", "", rel=1e-4)
        check.number(numbers[1], over, f"{what}, idle time over the ideal,", "", rel=1e-4)


verdict_bubble([(4, 8)], [(3 / 11, 0.375)])
### BEGIN HIDDEN TESTS
verdict_bubble([(4, 1), (4, 32), (8, 8)], [(0.75, 3.0), (3 / 35, 3 / 32), (7 / 15, 0.875)])
verdict_bubble([(8, 32), (1, 5)], [(7 / 39, 7 / 32), (0, 0)])
verdict_bubble([(4, 8, 2), (8, 8, 4)], [(3 / 19, 3 / 16), (7 / 39, 7 / 32)])
### END HIDDEN TESTS

# %% [markdown]
# ## cut_stages
#
# The slowest stage sets the pace, so the cut must go by cost and not by the number of layers: an embedding
# costs next to nothing, the output matrix of a large vocabulary as much as several layers.
# `cut_stages(costs, p)` cuts the layers, whose costs are given in order, into p consecutive non-empty pieces
# so that the most expensive piece costs as little as possible. It returns p + 1 bounds: piece s is layers
# `bounds[s]` to `bounds[s+1] - 1`. Any cut with the least maximum is right. There are at least p layers.
#
# *Example:* `cut_stages([1, 1, 1, 5], 2)` is `[0, 3, 4]` (costs 3 and 5; by count it would be 2 and 6).
#
# *Target:* 30 layers and p = 8 in well under a second: trying all cuts is too slow. *Size:* about 12 lines.

# %% solution="cut_stages"
def cut_stages(costs: list[float], p: int) -> list[int]:
    ### BEGIN SOLUTION
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    n = len(costs)
    best = {(0, 0): (0.0, [0])}  # (pieces, layers so far) -> the least maximum, its bounds
    for pieces in range(1, p + 1):
        for end in range(pieces, n - (p - pieces) + 1):
            starts = [start for start in range(pieces - 1, end) if (pieces - 1, start) in best]
            worst = {start: max(best[pieces - 1, start][0], total[end] - total[start]) for start in starts}
            start = min(worst, key=worst.get)
            best[pieces, end] = worst[start], best[pieces - 1, start][1] + [end]
    return best[p, n][1]
    ### END SOLUTION


# %% test="cut_stages_best" points=1
def probe_cut(cases):
    return [cut_stages(list(costs), p) for costs, p in cases]


def pieces_of(bounds, costs):
    return [sum(costs[start:end]) for start, end in pairwise(bounds)]


def verdict_cut(cases, least=None):
    run = launch(probe_cut, cases, ranks=None, timeout=10)
    for case, (bounds, (costs, p)) in enumerate(zip(run.value, cases, strict=True)):
        what = f"cut_stages({costs if len(costs) < 9 else '30 layers'}, {p})"
        n = len(costs)
        form = check.answer({"bounds": bounds}, what)
        check.has_list_of_ints(form, "bounds", what)
        bounds = list(bounds)
        whole_way = len(bounds) == p + 1 and bounds[0] == 0 and bounds[-1] == n
        assert whole_way, f"{what}: {bounds} does not go from 0 to {n} with {p} pieces."
        assert all(a < b for a, b in pairwise(bounds)), f"{what}: {bounds} has an empty piece."
        cuts = [] if least else [[0, *inner, n] for inner in combinations(range(1, n), p - 1)]
        best = least[case] if least else min(max(pieces_of(cut, costs)) for cut in cuts)  # the oracle: all cuts
        worst = max(pieces_of(bounds, costs))
        sizes = [b - a for a, b in pairwise(bounds)]
        by_count = " This is a cut by the number of layers." if max(sizes) - min(sizes) <= 1 else ""
        said = f"{what}: the most expensive piece costs {worst:g}, and {best:g} is possible.{by_count}"
        assert worst <= best + 1e-9, said


verdict_cut([([1, 1, 1, 5], 2), ([1, 2, 3, 4, 5, 6], 3)])
### BEGIN HIDDEN TESTS
verdict_cut([([3], 1), ([2, 2, 2, 2], 4), ([0.1, 1, 1, 1, 1, 1, 1, 3.5], 4), ([9, 1, 1, 1, 1, 1], 3)])
verdict_cut([([1, 5, 1, 1, 1, 5, 1], 3), ([4, 4, 1, 1, 1, 1, 4, 4], 4), ([7, 2, 5, 10, 8], 2)])
verdict_cut([([1] * 29 + [6], 8)], least=[6])
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. The engine
#
# ## run_schedule
#
# `run_schedule(schedule, stages, tokens, targets, hidden)` is called by every rank at the same time and works
# through `schedule[rank]`, **whatever schedule it is**: any that can run must run.
#
# - `schedule`: the whole schedule, p lists, stage s on rank s mod p. m is the number of micro-batches in it.
# - `stages`: a dictionary, stage number to `nn.Module`, of this rank's stages. A stage maps activations
#   `[b, S, H]` to `[b, S, H]`; stage 0 takes token numbers `[b, S]`, the last stage returns logits
#   `[b, S, V]`. (If there is one stage, both.) H is `hidden`; activations are float32.
# - `tokens`, `targets`: `[B, S]`, int64, the same on all ranks, B >= m. Micro-batch k is
#   `tokens.tensor_split(m)[k]`: micro-batches differ in size when m does not divide B.
# - **The loss is the mean cross-entropy over all counted targets of the whole batch.** A target of -100 is not
#   counted. Careful: micro-batches have different numbers of counted targets.
# - **Returns** that loss as a float on the rank of the last stage, None on the others.
# - Afterwards `parameter.grad` has grown by the gradient of that loss, for every parameter of this rank's
#   stages: exactly what one process with the whole model and the whole batch would have. The optimizer is the
#   caller's business, and so is `zero_grad`.
# - Every stage is called once for each F, in the order of the list, and its backward runs where the list says.
# - `tokens` and `targets` stay unchanged; nothing is kept from one call to the next.
#
# **Messages.** An activation goes straight from its stage's rank to the next stage's rank, once; the
# gradient with respect to it comes straight back, once. `b S H 4` bytes each. No message between stages of
# one rank. Nothing else is sent.
#
# **No deadlock** (死锁). Think of 1F1B: rank 0 wants to send an activation to rank 1 while rank 1 wants to
# send a gradient to rank 0. Both would wait in `dist.send` for ever. And two messages between the same two
# ranks may be taken in another order than they were sent, above all when interleaved: give each its own
# `tag`.
#
# **Memory.** Between its F and its B a rank must keep a micro-batch's activations. After its B nothing of it
# may stay alive: not its output, not what autograd saved. (An output that is being sent: its message has been
# received by the time the gradient is back, so waiting for it in B costs nothing. A *gradient* may still be
# on its way.)
#
# **The caller's memory.** When you return, every `isend` has been waited for.
#
# *Example*, p = 2, m = 2, GPipe: rank 0 runs stage 0 on rows 0..B/2 and sends `[B/2, S, H]` to rank 1, then
# does the same for the other half; then it receives the gradient of micro-batch 0's output and calls
# `output.backward(gradient)`.
#
# *Hints:* a received activation must be a leaf that requires a gradient; `x.grad` is what goes back. Dividing
# a *sum* of losses by the whole batch's count makes every micro-batch weigh what it should.
# *Size:* about 45 lines. Small functions help: receive, send, forward, backward.

# %% solution="run_schedule"
def run_schedule(
    schedule: list[list[tuple[str, int, int]]],
    stages: dict[int, nn.Module],
    tokens: torch.Tensor,
    targets: torch.Tensor,
    hidden: int,
) -> float | None:
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), len(schedule)
    last = max(stage for actions in schedule for _, stage, _ in actions)
    m = 1 + max(k for actions in schedule for _, _, k in actions)
    inputs, wanted = tokens.tensor_split(m), targets.tensor_split(m)
    counted = (targets != -100).sum()
    held = {}  # (stage, micro-batch) -> input and output, from F to B
    sending = {}  # (op, stage, micro-batch) that a message is for -> request and what it sends
    at_home = {}  # messages between stages of this rank
    losses = []

    def tag(op, stage, k):
        return 2 * (stage * m + k) + (op == "B")

    def post(op, stage, k, tensor):
        if stage % p == rank:
            at_home[op, stage, k] = tensor
        else:
            tensor = tensor.contiguous()
            sending[op, stage, k] = dist.isend(tensor, stage % p, tag=tag(op, stage, k)), tensor

    def take(op, stage, k, source):
        if source % p == rank:
            return at_home.pop((op, stage, k))
        buffer = torch.empty(*inputs[k].shape, hidden)
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
        return buffer

    def forward(stage, k):
        x = inputs[k] if stage == 0 else take("F", stage, k, stage - 1).requires_grad_()
        y = stages[stage](x)
        if stage == last:
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted
            losses.append(y.item())
        else:
            post("F", stage + 1, k, y.detach())
        held[stage, k] = x, y

    def backward(stage, k):
        x, y = held.pop((stage, k))
        y.backward(None if stage == last else take("B", stage, k, stage + 1))
        if ("F", stage + 1, k) in sending:
            sending.pop(("F", stage + 1, k))[0].wait()
        if stage > 0:
            post("B", stage - 1, k, x.grad)

    for op, stage, k in schedule[rank]:
        (forward if op == "F" else backward)(stage, k)
    for request, _ in sending.values():
        request.wait()
    return sum(losses) if last % p == rank else None
    ### END SOLUTION


# %% [markdown]
# The next cell is the tests' own: small models with random numbers in them, cut into stages, run on ranks by
# your engine, and held to the whole model in one process.

# %% shared="cases"
VOCAB, HIDDEN, LENGTH, RATE = 13, 8, 5, 0.1


def case_of(orders, layers=None, rows=4, *, ignored=False, steps=1, tied=False, seed=0, slow=None, note=""):
    """One case: a schedule in short form, a model with `layers` blocks, batches of `rows` rows."""
    schedule = [read_actions(text) for text in orders]
    stages = 1 + max(stage for own in schedule for _, stage, _ in own)
    micro_batches = 1 + max(k for own in schedule for _, _, k in own)
    return {
        "schedule": schedule, "stages": stages, "m": micro_batches, "layers": layers or stages, "rows": rows,
        "ignored": ignored, "steps": steps, "tied": tied, "seed": seed, "slow": slow or {}, "note": note,
    }  # fmt: skip


def model_of(case):
    """The whole model, the same wherever it is built; no parameter is zero, no two are alike."""
    config = TransformerConfig(
        vocab_size=VOCAB, hidden=HIDDEN, layers=case["layers"], heads=2, ffn=12, max_len=LENGTH, tied=case["tied"]
    )
    model, generator = Transformer(config), torch.Generator().manual_seed(case["seed"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


def batch_of(case, step):
    """Tokens and targets [rows, LENGTH]; where `ignored`, later rows have fewer targets that count."""
    generator = torch.Generator().manual_seed(100 * case["seed"] + step)
    tokens, targets = torch.randint(VOCAB, (2, case["rows"], LENGTH), generator=generator)
    if case["ignored"]:
        for row in range(case["rows"]):
            targets[row, : row % LENGTH] = -100
    return tokens, targets


def own_stages(case, rank):
    """The stages of one rank, by number."""
    bounds = [round(s * case["layers"] / case["stages"]) for s in range(case["stages"] + 1)]
    ranks = len(case["schedule"])
    return {s: stage for s, stage in enumerate(cut_model(model_of(case), bounds)) if s % ranks == rank}


def steps_of(case, run, tie=None):
    """Some steps of SGD with `run` as the engine (and `tie` after it); plain data of each step."""
    stages, log, results = own_stages(case, dist.get_rank()), StageLog(), []
    pause = case["slow"].get(dist.get_rank(), 0)
    for stage in stages.values():
        stage.register_forward_pre_hook(lambda *_: time.sleep(pause))
    parameters = {name: p for stage in stages.values() for name, p in stage.named_parameters()}
    for step in range(case["steps"]):
        log.ran.clear()
        logged = {number: log.around(stage, number) for number, stage in stages.items()}
        tokens, targets = batch_of(case, step)
        loss = run(case["schedule"], logged, tokens, targets, HIDDEN)
        if tie is not None:
            tie(stages, case["stages"])
        grads = {name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()}
        results.append({"loss": loss, "grads": grads, "ran": log.actions(), "most": log.most_held, "left": log.held(),
                        "tokens": tokens, "targets": targets})  # fmt: skip
        with torch.no_grad():
            for p in parameters.values():
                p -= RATE * (0 if p.grad is None else p.grad)
                p.grad = None
    return results, {name: p.detach().clone() for name, p in parameters.items()}


def gradients(model, tokens, targets, reduction="mean"):
    """Loss and gradients of the whole model in one process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for numbers this small a second thread only gets in the way
    model.zero_grad(set_to_none=True)
    loss = model.loss(tokens, targets, reduction)
    loss.backward()
    torch.set_num_threads(threads)
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}


def whole(case):
    """The oracle: the same steps by one process with the whole model and the whole batch; then its parameters."""
    model, steps = model_of(case), []
    for step in range(case["steps"]):
        steps.append(gradients(model, *batch_of(case, step)))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter -= RATE * steps[-1][1][name]
    return steps, {name: p.detach() for name, p in model.named_parameters()}


def mistakes(case):
    """What some misunderstandings make of the first batch's gradient: in words, and in numbers."""
    model, (tokens, targets), m = model_of(case), batch_of(case, 0), case["m"]
    parts = list(zip(tokens.tensor_split(m), targets.tensor_split(m), strict=True))
    means = [gradients(model, *part)[1] for part in parts]
    sums = [gradients(model, *part, "sum")[1] for part in parts]
    counted, rows = int((targets != -100).sum()), [len(part) / len(tokens) for part, _ in parts]

    def weighted(grads, weights):
        return {name: sum(grad[name] * w for grad, w in zip(grads, weights, strict=True)) for name in grads[0]}

    factors = {
        "each micro-batch's mean was added up and never divided by m": float(m),
        "divided by m, though it is a mean over the whole batch already": 1 / m,
        "the sum over targets was never divided by their number": float(counted),
        "the sum over targets was divided by m and not by their number": counted / m,
    }
    likes = {
        "only the last micro-batch's part is there": weighted(sums[-1:], [1 / counted]),
        "every micro-batch weighs the same, however many targets it has (a mean of means)": weighted(
            means, [1 / m] * m
        ),
        "micro-batches were weighted by their rows, not by their counted targets": weighted(means, rows),
        "the sum was divided by all targets; those of -100 do not count": weighted(sums, [1 / targets.numel()] * m),
        "the means of the micro-batches were added up": weighted(means, [1] * m),
    }
    return factors, likes


def where_of(case, step=0):
    """A case in words."""
    p, v = len(case["schedule"]), case["stages"] // len(case["schedule"])
    text = schedules.case_text("run_schedule", p, case["m"], v) + f", {case['rows']} rows"
    text += "".join(f", rank {rank} is slow" for rank in case["slow"]) + (f", {case['note']}" if case["note"] else "")
    return text + (f", batch {step + 1}" if case["steps"] > 1 else "")


def hold_gradients(results, case):
    """Loss and gradients of every rank and every step are those of the oracle; inputs are unchanged."""
    steps, _ = whole(case)
    last = (case["stages"] - 1) % len(case["schedule"])
    for step, (loss, grads) in enumerate(steps):
        where = where_of(case, step)
        for rank, (ran, _) in enumerate(results):
            got, what = ran[step], f"{where}: gradients of rank {rank}"
            mine = {name: grads[name] for name in got["grads"]}
            try:
                check.agree(got["grads"], mine, what)
            except check.CheckFailed:  # wrong: only now is it worth the time to find out what it looks like
                factors, likes = mistakes(case) if step == 0 else later_mistakes(steps, step)
                what += ". The batch before was right, so something was kept from it" if step else ""
                check.agree(got["grads"], mine, what, suspects=factors, resembles=likes)
            hold_loss(got["loss"], loss if rank == last else None, f"{where}: rank {rank}")
            check.unchanged([got["tokens"], got["targets"]], batch_of(case, step), where)


def later_mistakes(steps, step):
    before, now = steps[step - 1][1], steps[step][1]
    both = {name: grad + before[name] for name, grad in now.items()}
    return {}, {"the batch before is still in it": both, "it is the batch before": before}


def hold_loss(got, want, where):
    if want is None:
        assert got is None, f"{where} returned {got!r}; only the rank of the last stage returns the loss."
        return
    check.has_number({"the loss": got}, "the loss", where)
    check.number(float(got), want, f"{where}: the returned loss", "nats", rel=1e-4)


# %% test="run_gradients" points=2
def probe_gradients(cases):
    return [steps_of(case, run_schedule) for case in cases]


def verdict_gradients(cases, delay=None):
    run = launch(probe_gradients, cases, ranks=len(cases[0]["schedule"]), timeout=15, delay=delay)
    for number, case in enumerate(cases):
        hold_gradients([value[number] for value in run.values], case)


forward_order = case_of(["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"])
last_first = ["0F0 0F1 0F2 0B2 0B1 0B0", "1F0 1F1 1F2 1B2 1B1 1B0"]
backward_order = case_of(last_first, rows=6, seed=1, slow={1: 0.03})
verdict_gradients([forward_order, backward_order])
verdict_gradients([case_of(["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1"], seed=2)])
### BEGIN HIDDEN TESTS
verdict_gradients([case_of(["0F0 0F1 0F2 0B1 0B0 0B2"], layers=2, rows=6, seed=3), case_of(["0F0 0B0"], rows=1)])
four = [f"{s}F0 {s}F1 {s}F2 {s}B1 {s}B2 {s}B0" for s in range(4)]
one_by_one = [f"{s}F0 {s}B0 {s}F1 {s}B1" for s in range(4)]
verdict_gradients([case_of(four, rows=6, seed=4), case_of(one_by_one, rows=2, seed=5)], delay={2: 0.02})
### END HIDDEN TESTS

# %% test="run_loss_scaling" points=1
def probe_scaling(cases):
    return [steps_of(case, run_schedule) for case in cases]


def verdict_scaling(cases):
    run = launch(probe_scaling, cases, ranks=len(cases[0]["schedule"]), timeout=15)
    for number, case in enumerate(cases):
        hold_gradients([value[number] for value in run.values], case)


uneven = ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"]
verdict_scaling([case_of(uneven, rows=5, seed=6), case_of(uneven, rows=7, ignored=True, seed=7)])
### BEGIN HIDDEN TESTS
fours = ["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3", "2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3"]
verdict_scaling([case_of(fours, rows=7, ignored=True, seed=8, slow={1: 0.03}), case_of(fours, ignored=True, seed=9)])
### END HIDDEN TESTS

# %% test="run_one_f_one_b" points=1
def probe_one_f_one_b(cases):
    return [steps_of(case, run_schedule) for case in cases]


def verdict_one_f_one_b(cases, delay=None):
    run = launch(probe_one_f_one_b, cases, ranks=len(cases[0]["schedule"]), timeout=15, delay=delay)
    for number, case in enumerate(cases):
        results = [value[number] for value in run.values]
        for rank, (ran, _) in enumerate(results):
            schedules.ran_as_told(ran[0]["ran"], case["schedule"][rank], rank, where_of(case))
        hold_gradients(results, case)


two_ranks = ["0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"]
verdict_one_f_one_b([case_of(two_ranks, seed=10)])
### BEGIN HIDDEN TESTS
def in_turn(p, m):  # a rank runs B as soon as it has p - rank micro-batches in flight, or no F left
    orders = []
    for rank in range(p):
        begun, done, words = 0, 0, []
        while done < m:
            if begun < m and begun - done < p - rank:
                words, begun = words + [f"{rank}F{begun}"], begun + 1
            else:
                words, done = words + [f"{rank}B{done}"], done + 1
        orders.append(" ".join(words))
    return orders


verdict_one_f_one_b([case_of(in_turn(3, 5), rows=5, seed=11, slow={1: 0.03}), case_of(in_turn(3, 4))])
crossed = ["0F0 0F1 0F2 0B2 0B0 0B1", "1F0 1F1 1F2 1B0 1B1 1B2"]
verdict_one_f_one_b([case_of(crossed, rows=3, seed=19, note="gradients are needed in another order than sent")])
late = case_of(in_turn(4, 6), rows=6, seed=12, slow={1: 0.005, 3: 0.005})
verdict_one_f_one_b([case_of(in_turn(4, 1), rows=2), late], delay={1: 0.02})
### END HIDDEN TESTS

# %% test="run_interleaved" points=1
def probe_interleaving(cases):
    return [steps_of(case, run_schedule) for case in cases]


def verdict_interleaving(cases, delay=None):
    run = launch(probe_interleaving, cases, ranks=len(cases[0]["schedule"]), timeout=15, delay=delay)
    for number, case in enumerate(cases):
        results = [value[number] for value in run.values]
        for rank, (ran, _) in enumerate(results):
            schedules.ran_as_told(ran[0]["ran"], case["schedule"][rank], rank, where_of(case))
        hold_gradients(results, case)


twice_round = ["0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"]
verdict_interleaving([case_of(twice_round, seed=13)])
### BEGIN HIDDEN TESTS
def turns(p, m, v, rank, warm_up):  # groups of p micro-batches, stage by stage
    forward = [(c * p + rank, g + k) for g in range(0, m, p) for c in range(v) for k in range(p)]
    backward = [(c * p + rank, g + k) for g in range(0, m, p) for c in reversed(range(v)) for k in range(p)]
    words = [f"{s}F{k}" for s, k in forward[:warm_up]]
    for (s, k), (t, j) in zip(forward[warm_up:], backward):
        words += [f"{s}F{k}", f"{t}B{j}"]
    return " ".join(words + [f"{t}B{j}" for t, j in backward[len(forward) - warm_up :]])


two = [turns(2, 4, 2, rank, 2 * (1 - rank) + 2) for rank in range(2)]
verdict_interleaving([case_of(two, seed=14, slow={1: 0.03}), case_of(two, rows=8, seed=15, slow={0: 0.005})])
three = [turns(3, 3, 2, rank, min(6, 2 * (2 - rank) + 3)) for rank in range(3)]
verdict_interleaving([case_of(three, rows=3, seed=16)], delay={2: 0.02})
verdict_interleaving([case_of(["0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1"], rows=2, seed=17)])
### END HIDDEN TESTS

# %% test="run_messages" points=1
def probe_messages(case):
    return watched(lambda: steps_of(case, run_schedule)[0])


def verdict_messages(case):
    run = launch(probe_messages, case, ranks=len(case["schedule"]), timeout=15)
    for _, files in run.values:
        written_without(files, PIPELINING, "run_schedule")
    check.no_collectives(run.trace)
    rows = [len(part) for part in torch.arange(case["rows"]).tensor_split(case["m"])]
    schedules.boundary_traffic(run.trace, case["schedule"], rows, LENGTH * HIDDEN * 4, where_of(case))


verdict_messages(case_of(["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1"], rows=5))
### BEGIN HIDDEN TESTS
verdict_messages(case_of([f"{s}F0 {s + 3}F0 {s + 3}B0 {s}B0" for s in range(3)], rows=2))
verdict_messages(case_of([f"{s}F0 {s}F1 {s}F2 {s}B0 {s}B1 {s}B2" for s in range(4)], rows=5))
verdict_messages(case_of(["0F0 1F0 1B0 0B0"], rows=2))
### END HIDDEN TESTS

# %% test="run_memory" points=1
def probe_memory(case):
    return [(step["most"], step["left"]) for step in steps_of(case, run_schedule)[0]]


def verdict_memory(case):
    run = launch(probe_memory, case, ranks=len(case["schedule"]), timeout=15)
    for rank, steps in enumerate(run.values):
        for step, (most, left) in enumerate(steps):
            schedules.held_at_once(most, left, case["schedule"][rank], rank, where_of(case, step))


six = ["0F0 0F1 0B0 0F2 0B1 0F3 0B2 0F4 0B3 0F5 0B4 0B5", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4 1B4 1F5 1B5"]
verdict_memory(case_of(six, rows=6))
### BEGIN HIDDEN TESTS
three = ["0F0 0F1 0F2 0B0", "1F0 1F1 1B0", "2F0 2B0"]
three[0] += "".join(f" 0F{k} 0B{k - 2}" for k in range(3, 8)) + " 0B6 0B7"
three[1] += "".join(f" 1F{k} 1B{k - 1}" for k in range(2, 8)) + " 1B7"
three[2] += "".join(f" 2F{k} 2B{k}" for k in range(1, 8))
verdict_memory(case_of(three, rows=8, steps=2))
### END HIDDEN TESTS

# %% test="run_two_batches" points=1
def probe_two(case):
    return steps_of(case, run_schedule)


def verdict_two(case):
    run = launch(probe_two, case, ranks=len(case["schedule"]), timeout=15)
    hold_gradients(run.values, case)
    _, parameters = whole(case)
    for rank, (_, got) in enumerate(run.values):
        mine = {name: parameters[name] for name in got}
        check.agree(got, mine, f"{where_of(case)}: parameters of rank {rank} after {case['steps']} steps of SGD")


verdict_two(case_of(["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"], steps=2, seed=18))
### BEGIN HIDDEN TESTS
three = ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1B0 1F2 1B1 1B2", "2F0 2B0 2F1 2B1 2F2 2B2"]
verdict_two(case_of(three, steps=3, rows=3, slow={1: 0.03}))
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. A tied embedding
#
# ## sum_tied_gradient
#
# In a model with *tied embeddings* (共享词嵌入) the input embedding and the output matrix are one parameter.
# In a pipeline the first stage needs it for the tokens and the last for the logits, so both ranks hold a
# **copy**, and after `run_schedule` each copy has a part of its gradient. The true gradient is the sum. If
# it is not made, the two copies drift apart from the first step on, and nothing tells you: the loss still falls.
#
# `sum_tied_gradient(stages, last)` is called by every rank after `run_schedule`; `stages` is this rank's
# dictionary of stages, `last` the number of stages (the last stage is `last - 1`). The copies are
# `stages[0].embedding.weight` and `stages[last - 1].head.weight`, `[V, H]`, stage s on rank s mod p.
# Afterwards both copies' `.grad` holds the sum of both.
#
# - If both stages are on one rank, they may share **one** Parameter: autograd has then added both parts
#   already. Or they may be two: then you add.
# - Ranks with neither stage do nothing. Each of the two ranks sends its part to the other once, `V H 4` bytes.
#
# *Example:* gradients `[[1, 2]]` on the first, `[[10, 20]]` on the last: both have `[[11, 22]]` afterwards.
# *Size:* about 14 lines.

# %% solution="sum_tied_gradient"
def sum_tied_gradient(stages: dict[int, nn.Module], last: int) -> None:
    ### BEGIN SOLUTION
    rank, last_home = dist.get_rank(), (last - 1) % dist.get_world_size()
    copies = []
    if rank == 0:
        copies.append(stages[0].embedding.weight)
    if rank == last_home:
        copies.append(stages[last - 1].head.weight)
    if len(copies) == 2 and copies[0] is not copies[1]:
        copies[0].grad += copies[1].grad
        copies[1].grad.copy_(copies[0].grad)
    if len(copies) != 1:
        return
    weight, peer = copies[0], last_home if rank == 0 else 0
    mine, other = weight.grad.clone(), torch.empty_like(weight.grad)
    requests = [dist.isend(mine, peer), dist.irecv(other, peer)]
    for request in requests:
        request.wait()
    weight.grad += other
    ### END SOLUTION


# %% test="tied_gradient" points=1
def part_of(stage, step, like):
    """A copy's part of the gradient: small whole numbers, other ones in each stage and step."""
    numbers = torch.arange(like.numel()).reshape(like.shape)
    return ((7 * numbers + 31 * stage + 13 * step) % 97).float()


def probe_tied(case, ends, split):
    rank, stages, results = dist.get_rank(), own_stages(case, dist.get_rank()), []
    if split:  # two Parameters, although both are on this rank
        stages = {number: copy.deepcopy(stage) for number, stage in stages.items()}
    for step in range(2):
        for number, stage in stages.items():
            for p in stage.parameters():
                p.grad = part_of(number, step, p)
        if rank in ends and len(ends) < 2 and not split:  # one Parameter: autograd adds both parts
            last = case["stages"] - 1
            stages[last].head.weight.grad = part_of(0, step, stages[last].head.weight)
            stages[last].head.weight.grad += part_of(last, step, stages[last].head.weight)
        sum_tied_gradient(stages, case["stages"])
        named = [(number, *pair) for number, stage in stages.items() for pair in stage.named_parameters()]
        results.append([(number, name, p.grad.clone()) for number, name, p in named])
    return results


def verdict_tied(orders, *, split=False):
    case = case_of(orders, tied=True)
    ranks, last = len(orders), case["stages"] - 1
    ends = sorted({0, last % ranks})
    run = launch(probe_tied, case, ends, split, ranks=ranks, timeout=15)
    what = f"sum_tied_gradient (p = {ranks}, {last + 1} {'stage' if last == 0 else 'stages'})"
    for rank, results in enumerate(run.values):
        for step, grads in enumerate(results):
            for stage, name, got in grads:
                hold_tied(got, stage, name, last, step, f"{what}: call {step + 1}, rank {rank}, stage {stage}")
    check.no_collectives(run.trace)
    for rank in range(ranks):
        due = 2 * VOCAB * HIDDEN * 4 if rank in ends and len(ends) > 1 else 0
        sent = run.trace.bytes_sent(rank)
        assert sent == due, f"{what}: rank {rank} sent {sent} bytes in two calls; {due} are right."


def hold_tied(got, stage, name, last, step, where):
    own, parts = part_of(stage, step, got), [part_of(0, step, got), part_of(last, step, got)]
    if (stage, name) not in ((0, "embedding.weight"), (last, "head.weight")):
        check.agree(got, own, f"{where}, {name}, which is not tied", rtol=0, atol=0)
        return
    likes = {
        "it is still this copy's own part; the other was not added": own,
        "it is the other copy's part; its own is gone": sum(parts) - own,
        "the other part was added twice": 2 * sum(parts) - own,
    }
    twice = {"autograd had added both parts already: one Parameter, counted twice": 2.0, "a mean; a sum is wanted": 0.5}
    check.agree(got, sum(parts), f"{where}, {name}", suspects=twice, resembles=likes)


verdict_tied(["0F0 0B0", "1F0 1B0"])
verdict_tied(["0F0 0B0", "1F0 1B0", "2F0 2B0"])
### BEGIN HIDDEN TESTS
verdict_tied(["0F0 0B0"])
verdict_tied(["0F0 1F0 1B0 0B0"])
verdict_tied(["0F0 1F0 1B0 0B0"], split=True)
verdict_tied(["0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"])
verdict_tied([f"{s}F0 {s}B0" for s in range(4)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. Measure it
#
# The next cell is not graded. It trains a Transformer on text, in one process and on two ranks with your
# engine and your `one_f_one_b`, for several m, and draws the seconds of a step. The whole batch is always
# the same, so all the work together is too. *Before you run it, predict:* one process takes T. Two ranks
# without a bubble would take T/2; with it, T/2 (1 + (p-1)/m). What do you expect for m = 1? And for m = 16,
# where each micro-batch is a single row?

# %%
import matplotlib.pyplot as plt

from utils.measure import time_on_ranks
from utils.models import batches
from utils.pictures import time_label

MICRO_BATCHES = [1, 2, 4, 8, 16]
BIG = TransformerConfig(hidden=128, layers=4, heads=4, max_len=64)


def step_times(ranks):
    tokens, targets = next(batches(16, 64, steps=1))
    stages = cut_model(Transformer(BIG), [round(4 * s / ranks) for s in range(ranks + 1)])
    mine = {dist.get_rank(): stages[dist.get_rank()]}

    def step(m):
        mine[dist.get_rank()].zero_grad()
        run_schedule(one_f_one_b(ranks, m), mine, tokens, targets, BIG.hidden)

    return [min(time_on_ranks(step, m, warmup=1, tries=3)) for m in (MICRO_BATCHES if ranks > 1 else [1])]


def measure_and_plot():
    (alone,) = launch(step_times, 1, ranks=1, trace=False).values[0]
    measured_times = launch(step_times, 2, ranks=2, trace=False).values[0]
    predicted_times = [alone / 2 * (1 + 1 / m) for m in MICRO_BATCHES]
    print(f"one process: {time_label(alone)} a step")
    for m, took, said in zip(MICRO_BATCHES, measured_times, predicted_times, strict=True):
        share = f"bubble {bubble(2, m)[0]:.0%} of the total"
        print(f"m = {m:2}: predicted {time_label(said):>8} ({share}), measured {time_label(took):>8}")
    ax = plt.subplots(figsize=(6.0, 3.6), layout="constrained")[1]
    ax.plot(MICRO_BATCHES, [1e3 * t for t in predicted_times], "--", label="predicted: T/2 (1 + 1/m)")
    ax.plot(MICRO_BATCHES, [1e3 * t for t in measured_times], "o-", label="measured, 2 ranks")
    ax.axhline(1e3 * alone, color="#777777", linewidth=1, label="one process")
    ax.set_xscale("log", base=2)
    ax.set_xticks(MICRO_BATCHES, [str(m) for m in MICRO_BATCHES])
    ax.set_ylim(0, None)
    ax.set_xlabel("micro-batches m")
    ax.set_ylabel("ms per step (fastest of 3)")
    ax.legend(frameon=False, fontsize=9)


measure_and_plot()

# %% [markdown]
# At first the curve follows the prediction. Then the micro-batches become so small that each one wastes
# time of its own (starting operators, sending messages), and the curve turns up. The best m lies between.
#
# ## measured
#
# Write down what you read off. Keys, all in seconds: `"one_process"`, `"m1"` and `"m4"` (the measured steps
# on two ranks), `"predicted_m4"`, and `"bubble_m4"`, the predicted idle share of the **total** for m = 4,
# which has no unit. Only the form is graded, and that your predictions follow from your numbers: machines
# differ.

# %% solution="measured"
def measured() -> dict:
    ### BEGIN SOLUTION
    return {"one_process": 0.120, "m1": 0.125, "m4": 0.080, "predicted_m4": 0.075, "bubble_m4": 0.2}
    ### END SOLUTION


# %% test="measured_form" points=1
answer = check.answer(launch(lambda: measured(), ranks=None, timeout=10).value, "measured")
for key in ("one_process", "m1", "m4", "predicted_m4", "bubble_m4"):
    check.has_number(answer, key, "measured")
### BEGIN HIDDEN TESTS
for key in ("one_process", "m1", "m4"):
    check.between(answer[key], 1e-4, 60, key, "s")
follows = answer["one_process"] / 2 * (1 + 1 / 4)
check.number(answer["predicted_m4"], follows, "predicted_m4 for your one_process", "s", rel=0.03)
check.number(answer["bubble_m4"], 1 / 5, "bubble_m4, the share of the total,", "", rel=0.03)
### END HIDDEN TESTS

# %% [markdown]
# # Part 6. Questions
#
# The visible tests show only whether your answer has the right form.
#
# ## question_numbers
#
# Return a dictionary of lists of whole numbers.
#
# 1. Four stages, two micro-batches, as in the lecture; every F and every B takes one unit of time. For GPipe:
#    `"units"`: [length of the step, idle units of each rank].
# 2. p = 4, m = 8. How many micro-batches do ranks 0, 1, 2, 3 have in flight at most? `"held_gpipe"` and
#    `"held_1f1b"`: four numbers each.
# 3. `"enough"`: the smallest m for which 1F1B's bubble is at most 10 % of the **total** time, for p = 4 and for
#    p = 8: [m, m].
# 4. A batch of B = 32 rows, S = 1024, H = 4096, activations and their gradients in bfloat16 (2 bytes).
#    `"crossing"`: how many MiB (2^20 bytes) cross the boundary between two stages in one step, both
#    directions together, with m = 4 and with m = 16: [MiB, MiB].

# %% solution="question_numbers"
def question_numbers() -> dict[str, list[int]]:
    ### BEGIN SOLUTION
    return {
        "units": [10, 6],
        "held_gpipe": [8, 8, 8, 8],
        "held_1f1b": [4, 3, 2, 1],
        "enough": [27, 63],
        "crossing": [512, 512],
    }
    ### END SOLUTION


# %% test="question_numbers_values" points=1
answer = check.answer(launch(lambda: question_numbers(), ranks=None, timeout=10).value, "question_numbers")
for key in ("units", "held_gpipe", "held_1f1b", "enough", "crossing"):
    check.has_list_of_ints(answer, key, "question_numbers")
### BEGIN HIDDEN TESTS
played = play([[(op, rank, k) for op in "FB" for k in range(2)] for rank in range(4)], 1, 1)
wanted = {"units": [int(played.seconds), int(played.seconds - played.busy(0))]}
wanted |= {"held_gpipe": [8] * 4, "held_1f1b": [4, 3, 2, 1]}
wanted |= {"enough": [next(m for m in range(1, 999) if 10 * (p - 1) <= m + p - 1) for p in (4, 8)]}
wanted |= {"crossing": [2 * 32 * 1024 * 4096 * 2 // 2**20] * 2}
check.answers_agree(answer, wanted, "question_numbers")
### END HIDDEN TESTS

# %% [markdown]
# ## question_causes
#
# Return a dictionary with one letter, as a string, for each key.
#
# `"bubble"`: where does a pipeline's bubble come from?
#
# - A: Messages between stages are slow, so ranks wait for the network; with an infinitely fast network there
#   is no bubble.
# - B: A stage must wait for the activation of the stage before it, so later stages are idle at the beginning;
#   gradients come back the other way, so earlier stages are idle around the turn and later ones at the end.
# - C: The optimizer step runs on one rank only, and the others wait for it.
# - D: Micro-batches are smaller than the batch, so each stage computes less efficiently.
#
# `"more"`: the same batch is cut into more micro-batches. What happens?
#
# - A: The bubble shrinks; more bytes cross each boundary; activations of all micro-batches grow.
# - B: The bubble shrinks; the gradient becomes noisier, because each micro-batch is smaller.
# - C: The bubble shrinks; the bytes stay the same in more messages, and each stage runs more, smaller operations.
# - D: The bubble grows, because more actions have to be scheduled.
#
# `"gain"`: with equal stages and the same m, what does 1F1B gain over GPipe?
#
# - A: A smaller bubble and less memory.
# - B: A smaller bubble; memory is the same.
# - C: The same bubble; fewer micro-batches' activations are alive at once.
# - D: The same bubble and memory, but fewer messages.
#
# `"price"`: what does interleaving with v stages a rank cost?
#
# - A: v times as many activations and gradients cross between ranks, for a bubble v times smaller.
# - B: v times the parameters on each rank.
# - C: Nothing; it is always better.
# - D: Different gradients, because a rank's layers are no longer consecutive.
#
# `"table"`: the lecture draws 4 stages and 2 micro-batches like this, time from left to right:
#
#     GPU0: F0 F1 ........ B1 B0
#     GPU1: .... F0 F1 ... B1 B0
#     GPU2: ....... F0 F1 B1 B0
#     GPU3: .......... F0 B0 F1 B1
#
# It shows well where the idle ends are. Why can it not be taken for an exact timeline?
#
# - A: GPU3 must not run B0 before F1.
# - B: Micro-batch 1 has to go backward before micro-batch 0 on every GPU.
# - C: GPU0 and GPU1 run B1 at the same moment, and GPU0's B1 needs the gradient that GPU1's B1 makes.
# - D: There are fewer micro-batches than stages, so no pipeline can run.

# %% solution="question_causes"
def question_causes() -> dict[str, str]:
    ### BEGIN SOLUTION
    return {"bubble": "B", "more": "C", "gain": "C", "price": "A", "table": "C"}
    ### END SOLUTION


# %% test="question_causes_letters" points=1
answer = check.answer(launch(lambda: question_causes(), ranks=None, timeout=10).value, "question_causes")
for key in ("bubble", "more", "gain", "price", "table"):
    check.has_letter(answer, key, "ABCD", "question_causes")
### BEGIN HIDDEN TESTS
check.answers_agree(answer, {"bubble": "B", "more": "C", "gain": "C", "price": "A", "table": "C"}, "question_causes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - A schedule is data. Whether it can run, how long it takes and what it holds in memory can be known before
#   a single process is started.
# - GPipe and 1F1B have the same bubble, (p-1)/(m+p-1) of the total; 1F1B holds at most p - r micro-batches on
#   rank r instead of m. Interleaving divides the bubble by v, and multiplies the messages by v.
# - The slowest stage sets the pace: cut by cost.
# - The loss of a micro-batch is a *sum over its targets divided by the whole batch's count*. Anything else is
#   wrong as soon as micro-batches differ.
