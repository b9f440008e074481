"""Checks of data-parallel traffic: what is right passes, and each fault has its own sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from utils import check


class FakeTrace:
    """A journal made of (op, numel, sent, received, wait) for each rank, in order of their starts."""

    def __init__(self, *ranks: list[tuple]) -> None:
        self.ranks, self.events = len(ranks), []
        for rank, ops in enumerate(ranks):
            for seq, (op, numel, sent, received, wait) in enumerate(ops):
                number = sum(e.op == op and e.rank == rank for e in self.events) + 1
                self.events.append(
                    SimpleNamespace(
                        rank=rank, seq=seq, op=op, numel=numel, sent=sent, received=received,
                        wait=wait, start=float(seq), number=number,
                    )
                )  # fmt: skip

    def of(self, rank: int) -> list:
        return [event for event in self.events if event.rank == rank]

    def bytes_sent(self, rank: int) -> int:
        return sum(event.sent for event in self.of(rank))

    def bytes_received(self, rank: int) -> int:
        return sum(event.received for event in self.of(rank))


def reduce(numel: int = 10, wait: float | None = 99.0) -> tuple:
    return ("all_reduce", numel, 4 * numel, 4 * numel, wait)


MARK = ("barrier", 0, 0, 0, None)


def said(test, *args: object, **options: object) -> str:
    with pytest.raises(check.CheckFailed) as caught:
        test(*args, **options)
    return str(caught.value)


def test_all_reduce_traffic() -> None:
    check.all_reduce_traffic(FakeTrace([reduce()], [reduce()]), 2, 40, "mean")
    check.all_reduce_traffic(FakeTrace([]), 1, 40, "alone")
    twice = said(check.all_reduce_traffic, FakeTrace([reduce()] * 2, [reduce()] * 2), 2, 40, "mean")
    assert "160 bytes in all, 2 times the 80" in twice and "reduced twice" in twice
    assert "did not come by messages" in said(check.all_reduce_traffic, FakeTrace([], []), 2, 40, "mean")
    gathered = FakeTrace(*[[("all_gather", 10, 80, 80, None)]] * 3)
    assert "p/2 times" in said(check.all_reduce_traffic, gathered, 3, 40, "mean")
    lopsided = FakeTrace([("broadcast", 10, 80, 0, None)], [("reduce", 10, 40, 0, None)], [("reduce", 10, 40, 0, None)])
    assert "one rank carries the others" in said(check.all_reduce_traffic, lopsided, 3, 40, "mean")


def test_broadcast_traffic() -> None:
    right = FakeTrace([("broadcast", 10, 40, 0, None)], [("broadcast", 10, 0, 40, None)])
    check.broadcast_traffic(right, 2, 0, 40, "start")
    assert "only 40 bytes reached rank 1" in said(check.broadcast_traffic, right, 2, 0, 48, "start")
    assert "2 times the 20" in said(check.broadcast_traffic, right, 2, 0, 20, "start")


def test_collective_sizes() -> None:
    trace = FakeTrace([reduce(6), reduce(4)], [reduce(6), reduce(4)])
    check.collective_sizes(trace, "all_reduce", [6, 4], "buckets", {})
    assert "another order" in said(check.collective_sizes, trace, "all_reduce", [4, 6], "buckets", {})
    assert "one each" in said(check.collective_sizes, trace, "all_reduce", [10], "buckets", {"one each": [6, 4]})
    assert "no broadcast was called" in said(check.collective_sizes, trace, "broadcast", [1], "buckets", {})


def test_overlap() -> None:
    right = [reduce(), MARK, reduce(), MARK, reduce()]
    check.overlap(FakeTrace(right, right), [1, 2], "backward")
    check.overlap(FakeTrace(right * 2), [1, 2], "backward", steps=2)
    after = [MARK, MARK, reduce(), reduce(), reduce()]
    assert "none of its 3 all-reduces" in said(check.overlap, FakeTrace(right, after), [1, 2], "backward")
    late = [MARK, reduce(), reduce(), MARK, reduce()]
    assert "at mark 1 of backward rank 0 had started 0" in said(check.overlap, FakeTrace(late), [1, 2], "backward")
    blocking = [reduce(wait=0.5), MARK, reduce(), MARK, reduce()]
    assert "waited for it there" in said(check.overlap, FakeTrace(blocking), [1, 2], "backward")
    second = said(check.overlap, FakeTrace(right + after), [1, 2], "backward", steps=2)
    assert "step 1: rank 0 had started none" in second
    assert "passed 2 of 4 marks" in said(check.overlap, FakeTrace(right), [1, 2], "backward", steps=2)
