"""Did gradients travel as data parallelism says: how many all-reduces, of which sizes, started when, bytes in all?

Counts are those of the journal (`utils.trace`). A ring all-reduce of S bytes on p ranks sends 2(p-1)/p S a rank and
2(p-1) S in all (Patarasuk and Yuan 2009). Moments are compared by their order on one rank, never by the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of


def all_reduce_traffic(trace, ranks: int, nbytes: int, what: str, *, spare: int = 0, uneven: int = 0) -> None:
    """The ranks together sent what one all-reduce of `nbytes` bytes sends, and no rank much more than its share.

    Args:
        nbytes: bytes of all the gradients, each counted once.
        spare: bytes that all ranks together may send besides, for a count or the like.
        uneven: bytes by which one rank's share may exceed 2(p-1)/p of `nbytes` (pieces that p does not divide).

    >>> all_reduce_traffic(run.trace, 4, 100, "average_gradients")
    Traceback (most recent call last):
    CheckFailed: average_gradients: the ranks sent 1200 bytes in all, 2 times the 600 = 2(p-1) x 100 ...
    """
    sent = [trace.bytes_sent(rank) for rank in range(ranks)]
    least, total = 2 * (ranks - 1) * nbytes, sum(sent)
    used = listed(sorted({event.op for event in trace.events if event.sent})) if total else "nothing"
    if not least <= total <= least + spare:
        times = f"{total / least:.3g} times the " if least else ""
        raise CheckFailed(
            f"{what}: the ranks sent {total} bytes in all, {times}{least} = 2(p-1) x {nbytes} that one all-reduce "
            f"of the gradients takes on p = {ranks} ranks (used: {used}). {_suspect(total, least, ranks)}"
        )
    share = 2 * (ranks - 1) * nbytes / ranks
    busiest = max(range(ranks), key=sent.__getitem__)
    if sent[busiest] > share + spare + uneven:
        raise CheckFailed(
            f"{what}: rank {busiest} sent {sent[busiest]} bytes, {sent[busiest] / share:.3g} times its share of "
            f"2(p-1)/p = {2 * (ranks - 1) / ranks:.3g} of {nbytes} bytes (used: {used}): one rank carries the others."
        )


def _suspect(total: int, least: int, ranks: int) -> str:
    if total < least:
        return "Values that did not come by messages, or not in full, do not count."
    if total * 2 == least * ranks and ranks != 4:
        return "p/2 times: was everything gathered everywhere and summed there?"
    if total == 2 * least:
        gathered = " (or, p/2 = 2, gathered everywhere and summed there)" if ranks == 4 else ""
        return f"Twice: was each gradient reduced twice{gathered}?"
    return "Is something sent more than once, or something that has no gradient?"


def collective_sizes(trace, op: str, want: Sequence[int], what: str, suspects: Mapping[str, Sequence[int]]) -> None:
    """Every rank called the collective `op` with these numbers of elements, in this order, and no others.

    suspects: sentence -> the sizes that a known misconception gives.

    >>> collective_sizes(run.trace, "all_reduce", [6, 4], "buckets", {"one for each parameter": [2, 4, 4]})
    Traceback (most recent call last):
    CheckFailed: buckets: rank 0 called all_reduce with [2, 4, 4] elements, wanted [6, 4]: one for each parameter.
    """
    for rank in range(trace.ranks):
        got = [event.numel for event in trace.of(rank) if event.op == op]
        if got == list(want):
            continue
        cause = next((sentence for sentence, sizes in suspects.items() if got == list(sizes)), "")
        if not cause and not got:
            cause = f"no {op} was called"
        if not cause and sorted(got) == sorted(want):
            cause = "the right sizes in another order"
        raise CheckFailed(
            f"{what}: rank {rank} called {op} with {_shown(got)} elements, wanted {_shown(want)}"
            + (f": {cause}." if cause else ".")
        )


def _shown(sizes: Sequence[int]) -> str:
    return str(list(sizes)) if len(sizes) <= 16 else f"[{', '.join(map(str, sizes[:14]))}, ... {len(sizes)} in all]"


def overlap(trace, least: Sequence[int], what: str, *, steps: int = 1) -> None:
    """All-reduces were started while backward ran, and nobody stood still for them there.

    The probe's model has marks: a barrier whenever the gradient passes from one layer to the one before it, and
    no other barriers. After a step's last mark the gradient reaches the first layer.

    Args:
        least: how many of a step's all-reduces each rank must have started when it meets the step's mark k.
        steps: how many such steps the probe makes, with equally many all-reduces each.

    >>> overlap(run.trace, [1, 2], "buckets")
    Traceback (most recent call last):
    CheckFailed: buckets: rank 0 had started none of its 3 all-reduces when backward came to the first layer ...
    """
    for rank in range(trace.ranks):
        reduces = [event for event in trace.of(rank) if event.op == "all_reduce"]
        marks = [event for event in trace.of(rank) if event.op == "barrier"]
        each = len(reduces) // steps
        if len(marks) != steps * len(least):
            raise CheckFailed(f"{what}: rank {rank} passed {len(marks)} of {steps * len(least)} marks in backward.")
        for step in range(steps):
            where = f"{what}, step {step}" if steps > 1 else what
            own, passed = reduces[step * each : (step + 1) * each], marks[step * len(least) : (step + 1) * len(least)]
            _in_step(rank, [sum(e.seq < mark.seq for e in own) for mark in passed], least, len(own), where)
            _not_blocked(rank, own, passed[-1], where)


def _in_step(rank: int, started: list[int], least: Sequence[int], every: int, what: str) -> None:
    if not started[-1]:
        raise CheckFailed(
            f"{what}: rank {rank} had started none of its {number_of(every, 'all-reduce')} when backward came to the "
            "first layer: nothing travels while it computes."
        )
    for mark, (have, need) in enumerate(zip(started, least, strict=True)):
        if have < need:
            raise CheckFailed(
                f"{what}: at mark {mark + 1} of backward rank {rank} had started {number_of(have, 'all-reduce')}, "
                f"and the gradients of {number_of(need, 'bucket')} were complete: start a bucket at once."
            )


def _not_blocked(rank: int, own: list, last_mark, what: str) -> None:
    for event in own:
        if event.wait is not None and event.wait < last_mark.start:
            raise CheckFailed(
                f"{what}: rank {rank} started all-reduce #{event.number} in backward and waited for it there, so "
                "backward stood still: start it with async_op=True, wait in finish()."
            )


def broadcast_traffic(trace, ranks: int, src: int, nbytes: int, what: str) -> None:
    """`nbytes` bytes reached every rank but `src`, and all together sent no more than (p-1) times that.

    >>> broadcast_traffic(run.trace, 3, 0, 100, "broadcast_model")
    Traceback (most recent call last):
    CheckFailed: broadcast_model: the ranks sent 400 bytes in all, 2 times the 200 = (p-1) x 100 that ...
    """
    for rank in range(ranks):
        received = trace.bytes_received(rank)
        if rank != src and received < nbytes:
            raise CheckFailed(
                f"{what}: only {received} bytes reached rank {rank}; parameters and buffers together have {nbytes}."
            )
    total, least = sum(trace.bytes_sent(rank) for rank in range(ranks)), (ranks - 1) * nbytes
    if total > least:
        used = listed(sorted({event.op for event in trace.events if event.sent}))
        raise CheckFailed(
            f"{what}: the ranks sent {total} bytes in all, {total / least:.3g} times the {least} = (p-1) x {nbytes} "
            f"that a broadcast takes (used: {used}). Are shared weights sent once, and to who needs them only?"
        )
