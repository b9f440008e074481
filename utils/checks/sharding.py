"""Is the state of training really sharded: who owns what, who holds how much, what travels, and when?

The evidence is raw data that ranks brought back: the elements that each optimizer updates, bytes of living
tensors (`utils.memory`), the journal of operations. Bounds are those of ZeRO (Rajbhandari et al. 2020, arXiv
1910.02054, sections 5 and 7): 1/p of a state on each rank, and 2, 2 and 3 times (p-1)/p of the parameters sent
in stages 1, 2 and 3. Left out: time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from utils.checks.agree import agree, close
from utils.checks.failed import CheckFailed
from utils.checks.flat_shards import accumulated, layout, norm, padded_vector, resharded, saved_share, segments
from utils.checks.words import number_of

__all__ = [
    "accumulated", "ahead", "during_backward", "gathered_peak", "held", "layout", "norm", "padded_vector",
    "resharded", "saved_share", "segments", "sends", "shares", "training",
]  # fmt: skip

RTOL, ATOL = 1e-4, 5e-6  # parameters of a few float32 steps; a wrong gradient moves them further
REDUCTIONS = ("reduce_scatter", "all_reduce", "reduce", "all_to_all")
GATHERS = ("all_gather", "broadcast")  # by what a unit is put together; a reduce-scatter can be an all-to-all


def shares(owned: Sequence[int], numel: int, what: str, *, units: int = 1) -> None:
    """The ranks own all `numel` elements between them, about numel / p each, none twice.

    Args:
        owned: by rank, how many elements its optimizer updates.
        units: how many vectors are sharded one by one; each may be padded, and its last share be short.

    >>> shares([12, 12, 12, 12], 12, "ZeroOne")
    Traceback (most recent call last):
    CheckFailed: ZeroOne: rank 0's optimizer updates all 12 elements: nothing is sharded. With 4 ranks its share is ...
    """
    ranks = len(owned)
    if ranks > 1:
        for rank, mine in enumerate(owned):
            if mine >= numel:
                raise CheckFailed(
                    f"{what}: rank {rank}'s optimizer updates all {numel} elements: nothing is sharded. "
                    f"With {ranks} ranks its share is about {numel / ranks:.0f}."
                )
    total = sum(owned)
    if total < numel:
        raise CheckFailed(
            f"{what}: the ranks update {list(owned)} elements, {total} together; the model has {numel}. "
            f"{number_of(numel - total, 'element')} belong to no rank."
        )
    if total > numel + units * ranks:
        raise CheckFailed(
            f"{what}: the ranks update {list(owned)} elements, {total} together; the model has {numel}. "
            "Some elements belong to more than one rank."
        )


def held(
    nbytes: Sequence[int], numel: int, most: float, what: str, reason: str, *, spare: int = 0
) -> None:
    """No rank holds more than `most` bytes a parameter, and `spare` bytes beside.

    Args:
        nbytes: by rank, bytes of living tensors.
        numel: the model's parameters.
        most: the right number of bytes a parameter; a tenth more is let through, for padding.
        reason: what makes up `most`, for the message; it reads on from "about 3 bytes a parameter is enough: ".
        spare: bytes that do not grow with the model's parameters, e.g. activations.

    >>> held([400, 1200], 100, 3, "after a step", "a quarter of 12")
    Traceback (most recent call last):
    CheckFailed: after a step: rank 1 holds 12 bytes a parameter; about 3 is enough: a quarter of 12.
    """
    worst = max(range(len(nbytes)), key=lambda rank: nbytes[rank])
    if nbytes[worst] > 1.1 * most * numel + spare:
        beside = max(nbytes[worst] - spare, 0) / numel
        raise CheckFailed(
            f"{what}: rank {worst} holds {_round(beside)} bytes a parameter; about {_round(most)} is enough: {reason}."
        )


def sends(
    trace, nbytes: float, wanted: float, what: str, hints: Mapping[float, str], *, least: float | None = None
) -> None:
    """Each rank sends `wanted` times (p-1)/p of `nbytes`, on the average over the ranks.

    Args:
        nbytes: bytes of the whole model (float32).
        wanted: 2 for stages 1 and 2, 3 for stage 3.
        hints: multiple -> what probably happened (": ... ."); the nearest to what was seen is told.
        least: the smallest multiple that is right, 0.97 * wanted if not given.

    Up to a tenth more is let through, for padding.

    >>> sends(run.trace, 4000, 2, "one step of ZeroOne", {3: ": an all-reduce where a reduce-scatter is enough?"})
    Traceback (most recent call last):
    CheckFailed: one step of ZeroOne: a rank sends 3 times (p-1)/p of the model's 4000 bytes, wanted 2: an ...
    """
    ranks = trace.ranks
    sent = sum(trace.bytes_sent(rank) for rank in range(ranks)) / ranks
    if ranks == 1:
        return
    seen = sent / (nbytes * (ranks - 1) / ranks)
    least = 0.97 * wanted if least is None else least
    if least <= seen <= 1.1 * wanted:
        return
    near = min(hints, key=lambda k: abs(k - seen), default=None)
    hint = hints[near] if near is not None and abs(near - seen) < 0.15 * near + 0.05 else "."
    raise CheckFailed(
        f"{what}: a rank sends {_round(seen)} times (p-1)/p of the model's {nbytes:.0f} bytes, "
        f"wanted {_round(wanted)}{hint}"
    )


def during_backward(trace, count: int, what: str) -> None:
    """Before the first barrier of each rank, `count` reductions of gradients were issued, one or more a unit.

    >>> during_backward(run.trace, 7, "ZeroTwo")
    Traceback (most recent call last):
    CheckFailed: ZeroTwo: rank 0 had issued 0 of 7 reductions of gradients when backward ended ...
    """
    for rank in range(trace.ranks):
        ops = trace.ops(rank)
        seen = sum(op in REDUCTIONS for op in ops[: ops.index("barrier")])
        if seen < count:
            raise CheckFailed(
                f"{what}: rank {rank} had issued {seen} of {count} reductions of gradients when backward ended: "
                "each unit is to be reduced as soon as its gradients are there, while backward goes on."
            )


def gathered_peak(
    marks: Sequence[Mapping[str, tuple[int, int]]], root: int, unit: int, count: int, activations: int, what: str
) -> None:
    """Parameters in blocks are whole only around their computation: forward and backward hold no more than that.

    Args:
        marks: by rank, for "forward" and "backward": (bytes alive at its end, most bytes during it).
        root, unit: bytes of the parameters outside the blocks, and of one block; count: how many blocks.
        activations: bytes that one process keeps for backward.
    """
    ranks = len(marks)
    shards = 2 * (root + count * unit) / ranks  # of parameters and gradients
    base = 1.05 * (shards + root + activations) + 3000
    for rank, mark in enumerate(marks):
        (left, most), (at_rest, highest) = mark["forward"], mark["backward"]
        limits = {
            "at the end of forward": (left, 1, "blocks are not freed after they have computed"),
            "in forward": (most, 2, "two blocks, one computing and one ahead, are enough"),
            "in backward": (highest, 4, "two blocks, and one block's gradients, computed and flat, are enough"),
            "at the end of backward": (at_rest + activations, 0, "blocks are not freed after their backward"),
        }
        for moment, (seen, allowed, why) in limits.items():
            if seen > base + (allowed + 0.6) * unit:
                raise CheckFailed(
                    f"{what}: {moment} rank {rank} holds {(seen - base) / unit:.1f} blocks' worth of bytes beside "
                    f"its shards, the root and activations; {allowed} is the most that is needed: {why}."
                )


Parameters = Mapping[str, torch.Tensor]


def training(
    got: Sequence[Sequence[Parameters]],
    start: Parameters,
    want: Sequence[Parameters],
    what: str,
    *,
    lr: float | None = None,
    suspects: Mapping[str, float] | None = None,
    alternatives: Mapping[str, Parameters] | None = None,
) -> None:
    """Every rank's parameters after each step are those of one process that trained on the whole batch.

    Args:
        got: by rank, the parameters after each step.
        start: the parameters before the first step.
        want: the oracle's, after each step.
        lr: the rate of plain SGD; then step 1 is held to the gradient, (before - after) / lr.
        suspects: sentence -> factor on the gradient, as in `agree`.
        alternatives: sentence -> the parameters after step 1 that this mistake leads to.
    """
    for rank, history in enumerate(got):
        if len(history) != len(want):
            raise CheckFailed(f"{what}: rank {rank} came back with {len(history)} steps of {len(want)}.")
        _first_step(history[0], start, want[0], f"{what}, rank {rank}", lr, suspects, alternatives or {})
    for rank, history in enumerate(got):
        for step in range(1, len(want)):
            agree(history[step], want[step], f"{what}, rank {rank}, after step {step + 1}", rtol=RTOL, atol=ATOL)


def _first_step(got, start, want, where, lr, suspects, alternatives) -> None:
    after = f"{where}, parameters after step 1"
    if set(got) == set(want) and not _close(got, want):
        fits = [sentence for sentence, mistake in alternatives.items() if _close(got, mistake)]
        if fits:
            raise CheckFailed(f"{after} are wrong: {fits[0]}.")
        stale = _stale(got, start, want)
        if stale:
            raise CheckFailed(f"{after}: {stale}.")
    if lr is None:
        agree(got, want, after, rtol=RTOL, atol=ATOL)
        return
    gradients = {name: (start[name] - got[name]) / lr if name in got else None for name in start}
    wanted = {name: (start[name] - want[name]) / lr for name in start}
    agree(gradients, wanted, f"{where}, gradient used in step 1", suspects=suspects, rtol=2e-3, atol=2e-5)


def _stale(got: Parameters, start: Parameters, want: Parameters) -> str | None:
    """In words, when every wrong element is as it was before the step."""
    a, b, c = (torch.cat([part[name].reshape(-1) for name in want]) for part in (got, start, want))
    if a.shape != c.shape:
        return None
    wrong = (a - c).abs() > ATOL + RTOL * c.abs()
    moves = (b - c).abs() > ATOL + RTOL * c.abs()
    if not bool((a == b)[wrong].all()):
        return None
    if int((wrong & moves).sum()) == int(moves.sum()):
        return "none has changed"
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements are as they were before the step, the others are right: "
        "owners update their shard, but the new values do not reach every rank"
    )


def _close(got: Parameters, want: Parameters) -> bool:
    return all(close(got[name], want[name], RTOL, ATOL) for name in want)


def ahead(trace, rank: int, root: float, unit: float, count: int, what: str) -> None:
    """While a unit computes, the all-gather of the next one is under way: forward, and backward.

    The probe marks the moment at which unit i computes by a barrier, in forward for i = 0, 1, ..., then in
    backward for i = count-1, ..., 0. Sizes are the bytes that a rank sends for a whole unit and for the root.

    >>> ahead(run.trace, 0, 264.0, 2460.0, 6, "ZeroThree")
    Traceback (most recent call last):
    CheckFailed: ZeroThree: while unit 0 computes in forward, unit 1 is not being gathered yet ...
    """
    events = trace.of(rank)
    marks = [place for place, event in enumerate(events) if event.op == "barrier"]
    if len(marks) != 2 * count:
        raise CheckFailed(f"{what}: {2 * count} computations were to be seen on rank {rank}, not {len(marks)}.")
    moved = [event.sent if event.op in GATHERS else 0 for event in events]
    turn = _turn(events, marks, count)
    back = sum(moved[turn:])
    for k, mark in enumerate(marks):
        forward = k < count
        step = k if forward else k - count
        name, following = (step, step + 1) if forward else (count - 1 - step, count - 2 - step)
        if step == count - 1:
            continue
        done = sum(moved[:mark]) - root if forward else sum(moved[turn:mark]) - (back - count * unit)
        which = "forward" if forward else "backward"
        if done < (step + 1.9) * unit:
            raise CheckFailed(
                f"{what}: while unit {name} computes in {which}, unit {following} is not being gathered yet: "
                "start its all-gather before the computation."
            )
        if done > (step + 2.6) * unit:
            raise CheckFailed(
                f"{what}: when unit {name} computes in {which}, {done / unit:.1f} units were already gathered; "
                f"one ahead, {step + 2} in all, is enough."
            )
        last = max(place for place in range(mark) if moved[place])
        if events[last].wait is not None and events[last].wait < events[mark].start:
            raise CheckFailed(
                f"{what}: the all-gather of unit {following} is started ahead in {which}, but waited for at once, "
                f"before unit {name} computes: nothing overlaps. Use async_op=True and wait when it is needed."
            )


def _turn(events, marks: list[int], count: int) -> int:
    """Where backward begins: the first operation after the last mark of forward."""
    return marks[count - 1] + 1


def _round(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
