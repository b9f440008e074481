"""Whether the network carried what the journal tells: evidence for a person, never a mark.

The journal is written beside the student's code and could be forged; the byte counter of the sandbox's private network
is the system's. It counts every packet: headers, acknowledgements, the meeting of the ranks. Measured with gloo at 2 to
4 ranks, for 4 bytes to 4 MB an operation: the ranks meet for 140 to 390 bytes a pair each way, a message of n bytes
costs n + 350 to n + 560, collectives what gloo's algorithms move (`FACTORS`, over the sum of the ranks' logical bytes)
and up to twice that when small, besides 150 to 700 bytes a rank for each rank. The bounds here are a good step wider.
"""

from __future__ import annotations

from utils.trace.events import Trace

LEAST_MEETING, MOST_MEETING = 130, 800  # bytes for each ordered pair of ranks
LEAST_MESSAGE, MOST_MESSAGE = 130, 1000  # bytes besides its own n, for each message
COLLECTIVE = 1200  # bytes for each rank and each other rank in a collective, a barrier, a new group
# Physical over logical bytes of gloo's collectives, 0.4 to 10 MB each at 2 and 4 ranks: all_reduce 1.01, broadcast
# 1.02, gather 1.02, scatter 1.01, all_gather 1.01, all_to_all 1.01, reduce 1.50 and 1.27, reduce_scatter 2.01; whole
# steps of DistributedDataParallel 1.02, ZeroRedundancyOptimizer 1.05, FSDP2 1.38 (2.0 for its reduce_scatter).
FACTORS = {"reduce_scatter": 2.0, "reduce": 1.5}
LEAST_FACTORS = {"reduce_scatter": 1.8}
SLACK = 4 << 10  # bytes within which too much tells nothing


def disagreement(traces: list[Trace], counted: int, all_told: bool = True) -> str:
    """A sentence where the counter and the journals of some runs cannot both be right, "" where they can.

    Args:
        counted: bytes that the network carried meanwhile.
        all_told: whether every run meanwhile is among `traces`, journalled and finished; else more may have been
            carried than they tell, and of collectives that began less.

    Example: journals that tell of 48 MB in messages while the network carried 0.2 MB.
    """
    least, most = sum(map(_least, traces)), sum(map(_most, traces))
    if counted < least:
        told = sum(_arrived(trace)[1] for trace in traces)
        return f"the journal tells of {_size(told)} sent in messages, but the network carried only {_size(counted)}"
    if all_told and counted < least + (collectives := sum(map(_least_of_collectives, traces))):
        told = collectives + sum(_arrived(trace)[1] for trace in traces)
        return f"the journal tells of {_size(told)} in collectives and messages, but the network carried only " \
               f"{_size(counted)}"
    if all_told and all(trace.complete for trace in traces) and counted > most + SLACK:
        return f"the journal tells of at most {_size(most)}, but the network carried {_size(counted)}"
    return ""


def _arrived(trace: Trace) -> tuple[int, int]:
    """Messages and their bytes that both sides tell of: what was sent and never received may not have left."""
    sides = [[e for e in trace.events if e.op == op and e.issued and e.peer != e.rank] for op in ("send", "recv")]
    return min(map(len, sides)), min(sum(e.sent + e.received for e in side) for side in sides)


def _least(trace: Trace) -> int:
    count, size = _arrived(trace)
    return size + LEAST_MESSAGE * count + LEAST_MEETING * trace.ranks * (trace.ranks - 1)


def _least_of_collectives(trace: Trace) -> int:
    """Bytes that gloo moves at least for what the finished collectives tell of."""
    events = [e for e in trace.events if e.op not in ("send", "recv") and e.end is not None and not e.failed]
    return int(sum(0.95 * e.sent * LEAST_FACTORS.get(e.op, 1.0) for e in events))


def _most(trace: Trace) -> int:
    sends = [e for e in trace.events if e.op == "send"]
    moved = 1.2 * sum(e.sent for e in sends) + MOST_MESSAGE * len(sends)
    for event in trace.events:
        if event.op not in ("send", "recv"):
            moved += 2 * event.sent * FACTORS.get(event.op, 1.0) + COLLECTIVE * trace.ranks
    return int(moved) + MOST_MEETING * trace.ranks * (trace.ranks - 1)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
