"""A trace as plain data and back: what the sandbox journaled, in a form that the grader can check before it believes.

The numbers of all operations are one integer matrix, a row each, columns as in `COLUMNS`; texts are numbers into a
table. Reading refuses, with a sentence, what no journal could have held: wrong types, ranks and codes out of range,
more operations than fit. Whether what is in range is true cannot be told from it alone.

Worked example: `trace_from_rows(trace_rows(run.trace)).bytes_sent(0)` is `run.trace.bytes_sent(0)`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..ranks.options import MOST_RANKS
from ..trace.events import Event, Group, Trace
from ..trace.ops import DTYPES, OPS, REDUCES

MOST_EVENTS = 200_000
MOST_TEXTS = 20_000
MOST_GROUPS = 4_096
MOST_CHARS = 4_000
MOST_DIMS = 6
_BIG = 1 << 50
_YEAR_NS = 366 * 24 * 3600 * 10**9
_ANY = (-(1 << 31), 1 << 31)

# name: lowest and highest value; None where it depends on the trace
COLUMNS: dict[str, tuple[int, int] | None] = {
    "rank": None, "seq": (0, _BIG), "op": (1, len(OPS) - 1), "group": None, "peer": None, "tag": _ANY,
    "nbytes": (0, _BIG), "sent": (0, _BIG), "received": (0, _BIG), "dtype": (0, len(DTYPES) - 1), "numel": (0, _BIG),
    "reduce": (0, len(REDUCES) - 1), "start": (-_YEAR_NS, _YEAR_NS), "wait": (-_YEAR_NS, _YEAR_NS),
    "end": (-_YEAR_NS, _YEAR_NS), "flags": (0, 63), "line": (0, 1 << 31), "call": None, "extra": None, "file": None,
    "function": None, "name": None, "ndim": (0, MOST_DIMS),
}  # fmt: skip
_TEXTS = ("call", "extra", "file", "function", "name")
_WIDTH = len(COLUMNS) + MOST_DIMS
_FAILED, _STRIDED, _LIMITED, _DROPPED, _WAITED, _ENDED = (1 << i for i in range(6))
_SIZES = re.compile(r"(all|[0-9,;]*)\Z")


class NotATrace(ValueError):
    """Rows that no trace can have; the text says which."""


def trace_rows(trace: Trace) -> dict[str, Any]:
    """The trace as plain data; past MOST_EVENTS operations the rest is left out and the trace is no longer complete."""
    events = trace.events[:MOST_EVENTS]
    texts: dict[str, int] = {}
    groups: dict[Group, int] = {}
    rows = [_row(e, texts, groups) for e in events]
    return {
        "ranks": trace.ranks,
        "seconds": float(trace.seconds),
        "complete": trace.complete and len(events) == len(trace.events),
        "groups": [[g.key, g.name, list(g.ranks)] for g in groups],
        "texts": list(texts),
        "numbers": np.array(rows, dtype=np.int64).reshape(len(rows), _WIDTH),
    }


def _row(e: Event, texts: dict[str, int], groups: dict[Group, int]) -> list[int]:
    def text(value: str) -> int:
        return texts.setdefault(value[:MOST_CHARS], len(texts))

    flags = (
        _FAILED * e.failed | _STRIDED * e.strided | _LIMITED * e.limited | _DROPPED * e.dropped
        | _WAITED * (e.wait is not None) | _ENDED * (e.end is not None)
    )  # fmt: skip
    shape = list(e.shape[:MOST_DIMS])
    return [
        e.rank, e.seq, OPS.index(e.op), groups.setdefault(e.group, len(groups)), -1 if e.peer is None else e.peer,
        e.tag, e.nbytes, e.sent, e.received, DTYPES.index(e.dtype), e.numel, REDUCES.index(e.reduce), _ns(e.start),
        _ns(e.wait), _ns(e.end), flags, e.line, text(e.call), text(e.extra), text(e.file), text(e.function),
        text(e.name), len(shape), *shape, *[0] * (MOST_DIMS - len(shape)),
    ]  # fmt: skip


def _ns(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * 1e9)


def trace_from_rows(rows: Any) -> Trace:
    """The trace that `trace_rows` wrote. Raises NotATrace for anything else."""
    if not isinstance(rows, dict) or set(rows) != {"ranks", "seconds", "complete", "groups", "texts", "numbers"}:
        raise NotATrace("a trace has ranks, seconds, complete, groups, texts and numbers")
    ranks, seconds, numbers = rows["ranks"], rows["seconds"], rows["numbers"]
    _need(type(ranks) is int and 1 <= ranks <= MOST_RANKS, f"ranks is {ranks!r}")
    _need(type(seconds) is float and 0 <= seconds <= _YEAR_NS / 1e9, f"seconds is {seconds!r}")
    _need(type(rows["complete"]) is bool, "complete is not yes or no")
    texts, groups = _texts(rows["texts"]), _groups(rows["groups"], ranks)
    _need(isinstance(numbers, np.ndarray) and numbers.dtype == np.int64, "numbers is not a matrix of int64")
    _need(numbers.ndim == 2 and numbers.shape[1] == _WIDTH, f"numbers has the shape {numbers.shape}")
    _need(len(numbers) <= MOST_EVENTS, f"{len(numbers)} operations, above {MOST_EVENTS}")
    _check_columns(numbers, ranks, len(texts), len(groups))
    return Trace(ranks, _events(numbers.tolist(), texts, groups), seconds, rows["complete"])


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise NotATrace(f"not a trace: {what}")


def _texts(texts: Any) -> list[str]:
    _need(isinstance(texts, list) and len(texts) <= MOST_TEXTS, "its table of texts is too long")
    _need(all(type(t) is str and len(t) <= MOST_CHARS for t in texts), "a text of it is too long")
    return texts


def _groups(groups: Any, ranks: int) -> list[Group]:
    _need(isinstance(groups, list) and len(groups) <= MOST_GROUPS, "its table of groups is too long")
    made = []
    for entry in groups:
        _need(isinstance(entry, list) and len(entry) == 3, "a group has a key, a name and ranks")
        key, name, members = entry
        _need(all(type(t) is str and len(t) <= MOST_CHARS for t in (key, name)), "a group's name is too long")
        _need(isinstance(members, list) and all(type(r) is int and 0 <= r < ranks for r in members), "a group's ranks")
        _need(len(set(members)) == len(members), "a group has a rank twice")
        made.append(Group(key, name, tuple(members)))
    return made


def _check_columns(numbers: np.ndarray, ranks: int, texts: int, groups: int) -> None:
    bounds = dict.fromkeys(_TEXTS, (0, texts - 1))
    bounds |= {"rank": (0, ranks - 1), "peer": (-1, ranks - 1), "group": (0, groups - 1)}
    for column, (name, fixed) in enumerate(COLUMNS.items()):
        low, high = fixed or bounds[name]
        values = numbers[:, column]
        _need(not len(values) or bool((values >= low).all() and (values <= high).all()), f"{name} is out of range")
    shapes = numbers[:, len(COLUMNS) :]
    _need(not shapes.size or bool((shapes >= 0).all() and (shapes <= _BIG).all()), "a shape is out of range")


def _events(rows: list[list[int]], texts: list[str], groups: list[Group]) -> list[Event]:
    """Events, with `number`, which follows from the others, counted anew."""
    counts: dict[tuple[int, str, str], int] = {}
    seen: set[tuple[int, int]] = set()
    events = []
    for row in rows:
        at = dict(zip(COLUMNS, row))
        group, op, extra = groups[at["group"]], OPS[at["op"]], texts[at["extra"]]
        _need((at["rank"], at["seq"]) not in seen, f"rank {at['rank']} has an operation twice")
        _need(_SIZES.match(extra) is not None, "the sizes beside an operation are not numbers")
        seen.add((at["rank"], at["seq"]))
        key = (at["rank"], group.key, op)
        counts[key] = counts.get(key, 0) + 1
        events.append(_event(at, row[len(COLUMNS) :][: at["ndim"]], group, op, texts, counts[key]))
    return events


def _event(at: dict[str, int], shape: list[int], group: Group, op: str, texts: list[str], number: int) -> Event:
    flags = at["flags"]
    return Event(
        rank=at["rank"], seq=at["seq"], op=op, call=texts[at["call"]], group=group,
        peer=at["peer"] if at["peer"] >= 0 else None, tag=at["tag"], nbytes=at["nbytes"], sent=at["sent"],
        received=at["received"], dtype=DTYPES[at["dtype"]], shape=tuple(shape), numel=at["numel"],
        reduce=REDUCES[at["reduce"]], extra=texts[at["extra"]], start=at["start"] / 1e9,
        wait=at["wait"] / 1e9 if flags & _WAITED else None, end=at["end"] / 1e9 if flags & _ENDED else None,
        file=texts[at["file"]], line=at["line"], function=texts[at["function"]], number=number, name=texts[at["name"]],
        failed=bool(flags & _FAILED), strided=bool(flags & _STRIDED), limited=bool(flags & _LIMITED),
        dropped=bool(flags & _DROPPED),
    )  # fmt: skip
