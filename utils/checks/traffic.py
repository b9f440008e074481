"""Did ranks move data the way the task says: which operations, to whom, how many bytes, in how many rounds?

Byte counts are those of the journal (`utils.trace`). Bounds: a ring all-reduce of S bytes on p ranks sends
2(p-1)/p S per rank, a tree needs ceil(log2 p) rounds. Left out: time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of, ranks_text

NOT_COLLECTIVE = ("send", "recv", "barrier", "group", "new_group")  # the last three move no data


def no_collectives(trace) -> None:
    """No rank called a built-in collective (a barrier moves no data and is let through).

    >>> no_collectives(run.trace)
    Traceback (most recent call last):
    CheckFailed: Rank 0 called the built-in all_reduce; only send and receive are allowed.
    """
    for event in trace.events:
        if event.op not in NOT_COLLECTIVE:
            raise CheckFailed(
                f"Rank {event.rank} called the built-in {event.call}; only send and receive are allowed."
            )


def by_messages(trace, what: str, least: list[int], most: list[int] | None = None, rule: str = "") -> None:
    """The result came by messages: no built-in collective, and what each rank needs from others did arrive.

    Args:
        what: the operation, for the message.
        least: by rank, the bytes that it cannot do without, since it cannot know them.
        most: by rank, the bytes that it may send; `rule` says in words why that is enough.

    >>> by_messages(run.trace, "all_gather", [8, 8])
    Traceback (most recent call last):
    CheckFailed: all_gather: the values are right, but only 0 bytes reached rank 0 and it needs 8 from ...
    """
    no_collectives(trace)
    for rank, needed in enumerate(least):
        received = trace.bytes_received(rank)
        if received < needed:
            raise CheckFailed(
                f"{what}: the values are right, but only {received} bytes reached rank {rank} and it needs "
                f"{needed} from the others: they did not come by messages."
            )
    for rank, limit in enumerate(most or []):
        sent = trace.bytes_sent(rank)
        if sent > limit:
            raise CheckFailed(
                f"{what}: the values are right, but rank {rank} sent {sent} bytes "
                f"where {limit} are enough ({rule})."
            )


def ring_traffic(trace, numel: int, itemsize: int, ranks: int) -> None:
    """One all-reduce went round a ring: each rank sent to one neighbour only, 2(p-1)/p of the buffer's bytes.

    Chunks may differ by one element (`tensor_split`) or be padded to equal length, and may travel in several
    messages, leftwards or rightwards; all ranks the same way.
    """
    no_collectives(trace)
    nbytes = numel * itemsize
    if ranks == 1:
        if trace.bytes_sent(0):
            raise CheckFailed(f"One rank alone sent {trace.bytes_sent(0)} bytes; it has no one to send to.")
        return
    _one_neighbour(trace, ranks, nbytes)
    longest = math.ceil(numel / ranks) * itemsize
    least, most = 2 * (nbytes - longest), 2 * (ranks - 1) * longest
    for rank in range(ranks):
        for verb, moved in (("send", trace.bytes_sent(rank)), ("receive", trace.bytes_received(rank))):
            if not least <= moved <= most:
                done = "sent" if verb == "send" else "received"
                exact = f"{least} bytes" if least == most else f"{least} to {most} bytes"
                raise CheckFailed(
                    f"Rank {rank} {done} {moved} bytes, {moved / nbytes:.4g} times the buffer of {nbytes}; "
                    f"in a ring it {verb}s 2(p-1)/p = {2 * (ranks - 1) / ranks:.4g} times, {exact}."
                )


def _one_neighbour(trace, ranks: int, nbytes: int) -> None:
    peers = {rank: sorted(peer for peer in trace.peers(rank) if peer != rank) for rank in range(ranks)}
    busiest = max(range(ranks), key=lambda rank: (len(peers[rank]), trace.bytes_received(rank)))
    if len(peers[busiest]) > 1:
        fullest = max(range(ranks), key=trace.bytes_received)
        times = trace.bytes_received(fullest) / nbytes
        raise CheckFailed(
            f"Rank {busiest} sent to {ranks_text(peers[busiest])}; in a ring it sends to one neighbour only. "
            f"Rank {fullest} received {times:.3g} times the buffer; in a ring it receives "
            f"2(p-1)/p = {2 * (ranks - 1) / ranks:.3g} times."
        )
    silent = [rank for rank in range(ranks) if not peers[rank]]
    if silent:
        who = ranks_text(silent).capitalize()
        raise CheckFailed(f"{who} sent nothing; in a ring every rank sends to its neighbour.")
    if not any(all(peers[rank] == [(rank + step) % ranks] for rank in range(ranks)) for step in (1, -1)):
        pairs = listed(f"{rank} to {peers[rank][0]}" for rank in range(ranks))
        raise CheckFailed(
            f"Messages went from rank {pairs}; in a ring all go to the right, or all to the left."
        )


def tree_rounds(trace, ranks: int, nbytes: int, what: str) -> None:
    """One broadcast or reduce needed at most ceil(log2 p) rounds, p-1 messages and (p-1) * `nbytes` bytes.

    A rank sends at most one and receives at most one message in a round, and passes on only what it has.
    """
    no_collectives(trace)
    wanted = math.ceil(math.log2(ranks))
    total = sum(trace.bytes_sent(rank) for rank in range(ranks))
    if total != (ranks - 1) * nbytes:
        raise CheckFailed(
            f"{what} on {ranks} ranks sent {total} bytes in all; a tree sends the tensor "
            f"{number_of(ranks - 1, 'time')}, {(ranks - 1) * nbytes} bytes."
        )
    rounds, where = rounds_needed(trace)
    if rounds > wanted:
        sent = sum(event.rank == where and event.op == "send" for event in trace.events)
        got = sum(event.rank == where and event.op == "recv" for event in trace.events)
        raise CheckFailed(
            f"{what} on {ranks} ranks took {number_of(rounds, 'round')}; a tree takes ceil(log2 {ranks}) = "
            f"{wanted}. Last to finish is rank {where}: {number_of(sent, 'message')} sent, {got} received."
        )


def parts(trace, probe: str) -> list:
    """The trace cut where the function named `probe` called dist.barrier(); what other functions call cuts nothing.

    Worked example, `def probe(): first(); dist.barrier(); second()`: `parts(run.trace, "probe")` is two traces.
    """
    cut = [[] for _ in range(max(_marks(trace, rank, probe) for rank in range(trace.ranks)) + 1)]
    for rank in range(trace.ranks):
        part = 0
        for event in trace.of(rank):
            if _is_mark(event, probe):
                part += 1
            else:
                cut[part].append(event)
    in_order = [sorted(events, key=lambda event: (event.start, event.rank)) for events in cut]
    return [replace(trace, events=events, _by_rank={}) for events in in_order]


def _marks(trace, rank: int, probe: str) -> int:
    return sum(_is_mark(event, probe) for event in trace.of(rank))


def _is_mark(event, probe: str) -> bool:
    return event.op == "barrier" and event.function == probe


def rounds_needed(trace) -> tuple[int, int]:
    """The number of rounds in which the traced messages fit, and the rank that finishes last.

    A message goes out one round after the sender's earlier sends and after all that it had received by
    then; a rank takes in one message a round.

    Worked example: rank 0 sends to 1, then to 2, while 1 sends to 3: rounds 1, 2, 2, so 2 in all.
    """
    moments = [(event.start, 0, event) for event in trace.events if event.op == "send"]
    moments += [(event.end or math.inf, 1, event) for event in trace.events if event.op == "recv"]
    sent = defaultdict(int)  # by rank: the round of its last send
    arrivals = defaultdict(list)  # by rank: the rounds of what it has received
    on_the_way = defaultdict(list)  # by sender and receiver
    for _, is_receive, event in sorted(moments, key=lambda moment: moment[:2]):
        if not is_receive:
            sent[event.rank] = max(sent[event.rank], _taken_in(arrivals[event.rank])) + 1
            on_the_way[event.rank, event.peer].append(sent[event.rank])
        elif on_the_way[event.peer, event.rank]:
            arrivals[event.rank].append(on_the_way[event.peer, event.rank].pop(0))
    last = {rank: max(sent[rank], _taken_in(arrivals[rank])) for rank in {*sent, *arrivals}}
    where = max(last, key=last.get, default=0)
    return last.get(where, 0), where


def _taken_in(arrivals: list[int]) -> int:
    """The round in which the last of these messages is in, at one a round."""
    finished = 0
    for arrived in sorted(arrivals):
        finished = max(arrived, finished + 1)
    return finished
