"""The journal of a run, read by axis of its mesh: how many bytes went along dp, pp and tp."""

from __future__ import annotations

import math
from collections.abc import Sequence

from utils.mesh.mesh import AXES
from utils.trace.events import Trace


def axis_of(ranks: Sequence[int], shape: Sequence[int]) -> str:
    """The axis along which these global ranks lie: "dp", "pp", "tp", "world" for all of them, else "other".

    shape: (dp, pp, tp). Some of the ranks of a group will do, such as the two ends of a message.

    >>> axis_of([0, 4], (2, 2, 2)), axis_of([0, 2], (2, 2, 2)), axis_of([0, 3], (2, 2, 2))
    ('dp', 'pp', 'other')
    """
    _, pp, tp = shape
    coordinates = [(rank // (pp * tp), rank // tp % pp, rank % tp) for rank in ranks]
    along = [axis for axis, places in zip(AXES, zip(*coordinates, strict=True), strict=True) if len(set(places)) > 1]
    if len(along) == 1:
        return along[0]
    return "world" if len(ranks) == math.prod(shape) else "other"


def bytes_per_axis(trace: Trace, rank: int, shape: Sequence[int], way: str = "sent") -> dict[str, int]:
    """Logical bytes that `rank` sent along each axis, messages and collectives; "world" and "other" where there are.

    A message counts for the axis on which its two ends differ, whatever group it was sent in. way: "sent", or
    "received" for what reached the rank.

    >>> bytes_per_axis(run.trace, 0, (2, 2, 2))                          # doctest: +SKIP
    {'dp': 4096, 'pp': 2048, 'tp': 8192}
    """
    totals = dict.fromkeys(AXES, 0)
    for event in trace.of(rank):
        moved = getattr(event, way) if event.issued else 0
        if moved:
            axis = axis_of((rank, event.peer) if event.op in ("send", "recv") else event.group.ranks, shape)
            totals[axis] = totals.get(axis, 0) + moved
    return totals


def seconds_per_axis(trace: Trace, rank: int, shape: Sequence[int]) -> dict[str, float]:
    """Seconds that `rank` spent in operations along each axis, from the start of each to its end, waiting included.

    Operations that overlap each other count in full, each for its own axis.

    >>> seconds_per_axis(run.trace, 0, (2, 2, 2))                        # doctest: +SKIP
    {'dp': 0.011, 'pp': 0.042, 'tp': 0.087}
    """
    totals = dict.fromkeys(AXES, 0.0)
    for event in trace.of(rank):
        if event.end is not None and (event.sent or event.received):
            ends = (rank, event.peer) if event.op in ("send", "recv") else event.group.ranks
            axis = axis_of(ends, shape)
            totals[axis] = totals.get(axis, 0.0) + event.end - event.start
    return totals
