"""Checks of sharded state: each names the mistake that made the data it is given, and lets right data pass."""

from __future__ import annotations

import math

import pytest
import torch

from utils.checks import sharding
from utils.checks.failed import CheckFailed
from utils.trace.events import Event, Group, Trace

WORLD = Group("0", "world", (0, 1))


def event(op: str, rank: int = 0, sent: int = 0, start: float = 0.0, wait: float | None = None) -> Event:
    return Event(
        rank=rank, seq=0, op=op, call=op, group=WORLD, peer=None, tag=0, nbytes=0, sent=sent, received=0,
        dtype="float32", shape=(), numel=0, reduce="", extra="", start=start, wait=wait, end=None, file="", line=0,
        function="", number=1,
    )  # fmt: skip


def trace(events: list[Event], ranks: int = 2) -> Trace:
    return Trace(ranks, events, 1.0)


@pytest.mark.parametrize(
    ("got", "sizes", "says"),
    [
        ((22, [3] * 6 + [1, 0]), [3] * 6 + [1, 0], r"19 \+ 19 % 8"),
        ((8, [2, 2, 2, -1]), [2, 2, 1, 0], "off the last rank"),
        ((8, [2, 2, 2, 0]), [2, 2, 1, 0], "off the last rank"),
        ((8, [2, 2, 2, 2]), [2, 2, 1, 0], "counted as elements"),
        ((8, [2, 1, 1, 1]), [2, 2, 1, 0], "only the last ones can be short"),
        ((8, [2, 2, 1]), [2, 2, 1, 0], "4 numbers are wanted"),
        ((9, [2, 2, 1, 0]), [2, 2, 1, 0], "4 does not divide"),
        ((12, [2, 2, 1, 0]), [2, 2, 1, 0], "smallest multiple"),
        (None, [2, 2, 1, 0], r"\(padded, sizes\) is wanted"),
    ],
)
def test_layout_names_what_went_wrong(got, sizes, says):
    with pytest.raises(CheckFailed, match=says):
        sharding.layout(got, sizes, "shard_layout")


@pytest.mark.parametrize(("numel", "ranks"), [(0, 3), (1, 4), (5, 4), (8, 4), (57, 2)])
def test_right_layouts_pass(numel, ranks):
    shard = math.ceil(numel / ranks)
    sizes = [len(torch.zeros(numel)[r * shard : (r + 1) * shard]) for r in range(ranks)]
    sharding.layout((shard * ranks, sizes), sizes, "shard_layout")


def test_segments_tell_copies_decay_and_padding():
    right = {"sizes": [[2], [1]], "shard": torch.tensor([1.0, 1, -2, 0]), "grad": torch.tensor([1.0, 1, 2, 0])}
    sharding.segments(right, [0, 0, 1], [True, False], "owned")
    for change, says in (
        ({"sizes": [[2, 1], []]}, "belong to decayed"),
        ({"sizes": [[2], [2]]}, "Is there padding"),
        ({"shard": torch.zeros(4)}, "does not reach `shard`"),
        ({"grad": torch.zeros(4)}, "does not reach `grad`"),
        ({"shard": torch.tensor([0.0, 1, 1, -2])}, "views of other places"),
    ):
        with pytest.raises(CheckFailed, match=says):
            sharding.segments(right | change, [0, 0, 1], [True, False], "owned")


def test_accumulated_knows_an_overwritten_sum():
    before, want = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 7.0])
    sharding.accumulated(want, want, before, "grad", {})
    with pytest.raises(CheckFailed, match="only the newest"):
        sharding.accumulated(want - before, want, before, "grad", {})
    with pytest.raises(CheckFailed, match="never divided"):
        sharding.accumulated(2 * want, want, before, "grad", {"never divided": 2.0})


def test_resharded_tells_old_padding():
    whole = torch.arange(1.0, 6)
    sharding.resharded([torch.tensor([1.0, 2]), torch.tensor([3.0, 4]), torch.tensor([5.0, 0])], whole, 4, "load")
    stale = torch.tensor([5.0, math.nan])
    with pytest.raises(CheckFailed, match="padding of 4 ranks was taken for data"):
        sharding.resharded([torch.tensor([1.0, 2]), torch.tensor([3.0, 4]), stale], whole, 4, "load")
    with pytest.raises(CheckFailed, match="padding of 4 ranks was taken for data"):
        sharding.resharded([torch.arange(4.0), torch.arange(4.0)], whole, 4, "load")
    with pytest.raises(CheckFailed, match="element 2 is 9"):
        sharding.resharded([torch.tensor([1.0, 2, 9]), torch.tensor([4.0, 5, 0])], whole, 4, "load")


def test_saved_share_counts_what_is_nested():
    sharding.saved_share({"a": torch.zeros(3), "b": [1, 2]}, 5, "rank 0")
    with pytest.raises(CheckFailed, match="saves 6 elements"):
        sharding.saved_share({"a": torch.zeros(3), "b": [1, {"c": (2, 3)}]}, 5, "rank 0")


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (3.0, "only this rank's pieces"),
        (math.sqrt(25 + 2 * 4), "once for every rank"),
        (5.0, "replicated gradients were left out"),
        (math.sqrt(29 + 25 + 4), "counted twice"),
        (math.sqrt(49 + 4), "norms were added"),
        (29.0, "root is missing"),
        (7.77, "got the norm 7.77"),
        (None, "NoneType"),
    ],
)
def test_norm_names_what_was_counted(got, says):
    squares, copies, want = [[9.0], [16.0]], [4.0], math.sqrt(29)
    if says.startswith("only"):
        got = math.sqrt(9 + 4)
    sharding.norm(want, want, squares, copies, True, 0, "clip")
    with pytest.raises(CheckFailed, match=says):
        sharding.norm(got, want, squares, copies, True, 0, "clip")


def test_shares_are_about_a_quarter_and_cover_all():
    sharding.shares([3, 3, 3, 3], 12, "ZeRO")
    sharding.shares([12], 12, "ZeRO")
    for owned, says in (([12] * 4, "nothing is sharded"), ([3, 3, 3, 1], "2 elements belong to no rank"),
                        ([10, 10, 10, 10], "more than one rank")):  # fmt: skip
        with pytest.raises(CheckFailed, match=says):
            sharding.shares(owned, 12, "ZeRO")


def test_held_names_the_rank_and_both_numbers():
    sharding.held([300, 310], 100, 3, "after a step", "a quarter of 12")
    with pytest.raises(CheckFailed, match="rank 1 holds 12 bytes a parameter; about 3 is enough: a quarter of 12"):
        sharding.held([400, 1200 + 50], 100, 3, "after a step", "a quarter of 12", spare=50)


def test_sends_counts_in_units_of_the_model():
    def sending(nbytes):
        return trace([event("all_gather", rank, nbytes) for rank in range(2)])

    sharding.sends(sending(100), 100, 2, "step", {})
    with pytest.raises(CheckFailed, match=r"sends 3 times .* wanted 2: all-reduced"):
        sharding.sends(sending(150), 100, 2, "step", {3: ": all-reduced"})
    with pytest.raises(CheckFailed, match=r"sends 1 times .* wanted 2\.$"):
        sharding.sends(sending(50), 100, 2, "step", {3: ": all-reduced"})


def test_reductions_have_to_come_before_backward_ends():
    def ops(*names):
        return trace([event(name, rank) for rank in range(2) for name in names])

    sharding.during_backward(ops("reduce_scatter", "reduce_scatter", "barrier"), 2, "ZeroTwo")
    with pytest.raises(CheckFailed, match="0 of 2"):
        sharding.during_backward(ops("barrier", "reduce_scatter", "reduce_scatter"), 2, "ZeroTwo")


def schedule(*steps: tuple[str, float, float | None]) -> Trace:
    """Operations of rank 0, one a second: (op, bytes sent, when it was waited for)."""
    return trace([event(op, 0, sent, float(k), wait) for k, (op, sent, wait) in enumerate(steps)])


GATHER, MARK, REDUCE = ("all_gather", 10, 99.0), ("barrier", 0, None), ("reduce_scatter", 10, None)
ROOT = ("all_gather", 1, 0.0)
AHEAD = [ROOT, GATHER, GATHER, MARK, GATHER, MARK, MARK, GATHER, GATHER, MARK, REDUCE, GATHER, MARK, REDUCE, MARK]


def test_prefetch_is_seen_in_the_order_of_operations():
    sharding.ahead(schedule(*AHEAD), 0, 1, 10, 3, "ZeroThree")
    lazy = [ROOT, *[GATHER, MARK] * 3, *[GATHER, MARK, REDUCE] * 3]
    with pytest.raises(CheckFailed, match="unit 0 computes in forward, unit 1 is not being gathered yet"):
        sharding.ahead(schedule(*lazy), 0, 1, 10, 3, "ZeroThree")
    half = [*AHEAD[:7], *[GATHER, MARK, REDUCE] * 3]
    with pytest.raises(CheckFailed, match="unit 2 computes in backward, unit 1 is not being gathered yet"):
        sharding.ahead(schedule(*half), 0, 1, 10, 3, "ZeroThree")
    greedy = [ROOT, GATHER, GATHER, GATHER, MARK, MARK, MARK, *AHEAD[7:]]
    with pytest.raises(CheckFailed, match="one ahead, 2 in all, is enough"):
        sharding.ahead(schedule(*greedy), 0, 1, 10, 3, "ZeroThree")
    waiting = [ROOT, GATHER, ("all_gather", 10, 2.1), *AHEAD[3:]]
    with pytest.raises(CheckFailed, match="waited for at once"):
        sharding.ahead(schedule(*waiting), 0, 1, 10, 3, "ZeroThree")


def test_gathered_peak_tells_where_blocks_stay():
    def marks(left, most, rest, highest):
        return [{"forward": (left, most), "backward": (rest, highest)}] * 4

    root, unit, count, activations = 1000, 100_000, 8, 20_000
    base = 2 * (root + count * unit) / 4 + root + activations
    fine = (base, base + 2 * unit, base - activations, base + 4 * unit)
    sharding.gathered_peak(marks(*fine), root, unit, count, activations, "ZeroThree")
    for place, says in enumerate(("at the end of forward", "in forward", "at the end of backward", "in backward")):
        with pytest.raises(CheckFailed, match=says):
            wrong = [value + (6 * unit if k == place else 0) for k, value in enumerate(fine)]
            sharding.gathered_peak(marks(*wrong), root, unit, count, activations, "ZeroThree")


START = {"w": torch.tensor([1.0, 2.0, 3.0, 4.0])}
STEP = {"w": torch.tensor([0.9, 1.7, 2.5, 3.2])}


def trained(got, **options):
    sharding.training([[got], [STEP]], START, [STEP], "ZeroOne", **options)


def test_training_names_the_mistake():
    trained(STEP, lr=0.5)
    halfway = {"w": torch.tensor([0.9, 1.7, 3.0, 4.0])}
    doubled = {"w": START["w"] + 2 * (STEP["w"] - START["w"])}
    for got, says in (
        (halfway, "the new values do not reach every rank"),
        (START, "none has changed"),
        (doubled, "twice"),
        ({}, '"w" is None|"w" is missing'),
    ):
        with pytest.raises(CheckFailed, match=says):
            trained(got, lr=0.5, suspects={"twice": 2.0})
    with pytest.raises(CheckFailed, match="the last one only"):
        trained(doubled, alternatives={"the last one only": doubled})


def test_training_looks_at_later_steps_and_all_ranks():
    later = {"w": STEP["w"] - 0.1}
    with pytest.raises(CheckFailed, match="rank 1, after step 2"):
        sharding.training([[STEP, later], [STEP, STEP]], START, [STEP, later], "ZeroOne", lr=0.5)
    sharding.sends(trace([], ranks=1), 100, 2, "step", {})
