"""Traces as plain data: nothing is lost on the way, and what no journal could hold is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.distributed as dist

from utils import launch
from utils.answering import traces
from utils.answering.traces import COLUMNS, NotATrace, trace_from_rows, trace_rows
from utils.ranks import plain


def conversation() -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    x = torch.arange(6.0)
    request = dist.isend(x, (rank + 1) % p)
    dist.recv(torch.empty(6), (rank - 1) % p)
    request.wait()
    dist.all_reduce(x)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.broadcast(x[:3], 1, group=pair)
    dist.all_to_all(list(torch.empty(p, 2)), list(torch.ones(p, 2)))
    dist.barrier()


@pytest.fixture(scope="module")
def trace():
    return launch(conversation, ranks=3, show=False).trace


@pytest.fixture
def rows(trace):
    return plain.decode(plain.encode(trace_rows(trace)))


def test_comes_back_whole(trace, rows) -> None:
    back = trace_from_rows(rows)
    assert (back.ranks, back.complete, len(back.events)) == (3, True, len(trace.events))
    for before, after in zip(trace.events, back.events):
        times = ("start", "wait", "end")
        same = {name: getattr(before, name) for name in times}
        assert dataclasses.replace(after, **same) == before
        for name in times:
            assert getattr(after, name) == pytest.approx(same[name], abs=1e-8)
    assert [back.bytes_sent(r) for r in range(3)] == [trace.bytes_sent(r) for r in range(3)]
    assert back.ops(2) == trace.ops(2) and back.peers(1) == {2}


def test_no_operations() -> None:
    run = launch(lambda: None, ranks=None, show=False)
    assert trace_from_rows(plain.decode(plain.encode(trace_rows(run.trace)))).events == []


def test_more_than_fits_is_no_longer_complete(trace, monkeypatch) -> None:
    monkeypatch.setattr(traces, "MOST_EVENTS", 5)
    back = trace_from_rows(trace_rows(trace))
    assert len(back.events) == 5 and not back.complete


def at(name: str) -> int:
    return list(COLUMNS).index(name)


def bent(column: str, value: int):
    def bend(rows: dict) -> None:
        rows["numbers"] = rows["numbers"].copy()
        rows["numbers"][0, at(column)] = value

    return bend


def put(name: str, value: object):
    def bend(rows: dict) -> None:
        rows[name] = value

    return bend


def same_operation_twice(rows: dict) -> None:
    rows["numbers"] = np.concatenate([rows["numbers"], rows["numbers"][:1]])


def sizes_that_are_text(rows: dict) -> None:
    rows["texts"] = [*rows["texts"], "1,two"]
    bent("extra", len(rows["texts"]) - 1)(rows)


@pytest.mark.parametrize(
    ("bend", "says"),
    [
        (bent("rank", 3), "rank is out of range"),
        (bent("rank", -1), "rank is out of range"),
        (bent("peer", 3), "peer is out of range"),
        (bent("op", 99), "op is out of range"),
        (bent("op", 0), "op is out of range"),
        (bent("dtype", -1), "dtype is out of range"),
        (bent("sent", -8), "sent is out of range"),
        (bent("nbytes", 1 << 60), "nbytes is out of range"),
        (bent("call", 10**6), "call is out of range"),
        (bent("group", -1), "group is out of range"),
        (bent("ndim", 7), "ndim is out of range"),
        (bent("flags", 64), "flags is out of range"),
        (put("ranks", True), "ranks is True"),
        (put("ranks", 10**9), "ranks is 1000000000"),
        (put("seconds", float("nan")), "seconds is nan"),
        (put("complete", 1), "complete"),
        (put("texts", ["x" * 5000]), "too long"),
        (put("texts", "abc"), "table of texts"),
        (put("groups", [["0", "world", [0, 0]]]), "twice"),
        (put("groups", [["0", "world", [7]]]), "ranks"),
        (put("numbers", [[1, 2]]), "matrix"),
        (put("numbers", np.zeros((1, 3), np.int64)), "shape"),
        (put("numbers", np.zeros((traces.MOST_EVENTS + 1, traces._WIDTH), np.int64)), "above"),
        (put("numbers", np.zeros((1, traces._WIDTH))), "int64"),
        (same_operation_twice, "twice"),
        (sizes_that_are_text, "not numbers"),
        (put("more", 1), "a trace has"),
    ],
)
def test_what_no_journal_holds_is_refused(rows, bend, says) -> None:
    trace_from_rows(rows)
    bend(rows)
    with pytest.raises(NotATrace, match=says):
        trace_from_rows(rows)
