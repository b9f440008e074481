"""The readable form of journals: events, and the questions a test or a student asks of them.

Worked example, for a ring all-reduce of 12 float32 on 4 ranks:
`run.trace.bytes_sent(0)` is 72 (2 * 3/4 * 48 bytes), `run.trace.peers(0)` is `{1}`, `run.trace.collectives(0)` is `[]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import journal as jn
from .ops import COLLECTIVES, DTYPES, OPS, REDUCES


@dataclass(frozen=True)
class Group:
    """A process group as the journal saw it: torch's name for it, the name to show, its global ranks in order."""

    key: str
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Event:
    """One operation of one rank. Times are seconds since the run began; `end` is None while it is pending.

    op: "send", "recv", "all_reduce", ... ; call: the public function used ("isend", "all_gather_single", ...);
    peer: the other rank of a send or recv, the root of a rooted collective, else None; nbytes: the rank's own tensor;
    sent, received: logical bytes (see `utils.trace.ops`); number: 1 for the first `op` of this rank in this group;
    name: the variables that hold the tensor at the calling line, for collectives;
    dropped: its work was let go of before it was done.
    """

    rank: int
    seq: int
    op: str
    call: str
    group: Group
    peer: int | None
    tag: int
    nbytes: int
    sent: int
    received: int
    dtype: str
    shape: tuple[int, ...]
    numel: int
    reduce: str
    extra: str
    start: float
    wait: float | None
    end: float | None
    file: str
    line: int
    function: str
    number: int
    name: str = ""
    failed: bool = False
    strided: bool = False
    limited: bool = False
    dropped: bool = False

    @property
    def collective(self) -> bool:
        """True for an operation of the whole group, False for a send or a recv."""
        return self.op in COLLECTIVES

    @property
    def issued(self) -> bool:
        """False when the backend refused it at once, so that nothing was sent."""
        return not (self.failed and self.wait is None)

    def sizes(self) -> list[list[int]]:
        """The element counts written beside a rooted, scattered or all-to-all operation: one list, or in and out."""
        return [[int(n) for n in part.split(",") if n] for part in self.extra.split(";")]


def read_events(rank: int, snapshot: jn.Snapshot, origin: int) -> list[Event]:
    """The events of one rank, in order."""
    groups: dict[int, Group] = {}
    numbers: dict[tuple[str, str], int] = {}
    events = []
    for r in snapshot.records:
        if OPS[r.op % len(OPS)] == "group":
            groups[r.group] = _group(r.extra)
            continue
        group = groups.get(r.group, Group("?", "?", ()))
        op = OPS[r.op % len(OPS)]
        failed = bool(r.flags & jn.FAILED)
        number = numbers[group.key, op] = numbers.get((group.key, op), 0) + 1
        events.append(_event(rank, r, op, group, number, failed, origin))
    return events


def _group(extra: str) -> Group:
    key, name, ranks = (extra.split("|") + ["", "", ""])[:3]
    return Group(key, name, tuple(int(r) for r in ranks.split(",") if r))


def _event(rank: int, r: jn.Record, op: str, group: Group, number: int, failed: bool, origin: int) -> Event:
    file, line, function = _site(r.line)
    return Event(
        rank=rank,
        seq=r.seq,
        op=op,
        call=r.call or op,
        group=group,
        peer=r.peer if r.peer >= 0 else None,
        tag=r.tag,
        nbytes=r.nbytes,
        sent=r.sent,
        received=r.received,
        dtype=DTYPES[r.dtype % len(DTYPES)],
        shape=r.shape,
        numel=r.numel,
        reduce=REDUCES[r.reduce % len(REDUCES)],
        extra=r.extra,
        start=(r.start - origin) / 1e9,
        wait=(r.wait - origin) / 1e9 if r.wait else None,
        end=(r.end - origin) / 1e9 if r.end else None,
        file=file,
        line=line,
        function=function,
        number=number,
        name=r.name,
        failed=failed,
        strided=bool(r.flags & jn.STRIDED),
        limited=bool(r.flags & jn.HAS_LIMIT),
        dropped=bool(r.flags & jn.DROPPED),
    )


def _site(text: str) -> tuple[str, int, str]:
    file, _, rest = text.rpartition(":")
    file, _, line = file.rpartition(":")
    return file, int(line) if line.isdigit() else 0, rest


@dataclass(frozen=True)
class Trace:
    """What the ranks of one run said to each other; `complete` is False when it was more than the journal holds."""

    ranks: int
    events: list[Event]
    seconds: float
    complete: bool = True
    _by_rank: dict[int, list[Event]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for event in self.events:
            self._by_rank.setdefault(event.rank, []).append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def of(self, rank: int) -> list[Event]:
        """The events of one rank, in the order it issued them."""
        return self._by_rank.get(rank, [])

    def bytes_sent(self, rank: int, to: int | None = None) -> int:
        """Logical bytes `rank` sent; with `to`, only what it sent to that rank by send or isend."""
        return sum(e.sent for e in self.of(rank) if e.issued and (to is None or (e.op == "send" and e.peer == to)))

    def bytes_received(self, rank: int, source: int | None = None) -> int:
        """Logical bytes `rank` received; with `source`, only what came from that rank by recv or irecv."""
        return sum(
            e.received for e in self.of(rank) if e.issued and (source is None or (e.op == "recv" and e.peer == source))
        )

    def peers(self, rank: int) -> set[int]:
        """The ranks that `rank` sent anything to by send or isend."""
        return {e.peer for e in self.of(rank) if e.op == "send" and e.issued and e.peer is not None}

    def messages(self, rank: int) -> int:
        """How many point-to-point messages `rank` sent."""
        return sum(e.op == "send" and e.issued for e in self.of(rank))

    def ops(self, rank: int) -> list[str]:
        """The operations of `rank` in order: "send", "recv", "all_reduce", ..."""
        return [e.op for e in self.of(rank)]

    def collectives(self, rank: int) -> list[str]:
        """The collectives of `rank` in order, new_group left out."""
        return [e.op for e in self.of(rank) if e.collective and e.op != "new_group"]

    def since(self, start: float) -> Trace:
        """Only what began after `start`, in seconds since the run began."""
        return Trace(self.ranks, [event for event in self.events if event.start > start], self.seconds, self.complete)

    def plot(self, ax: Any = None) -> Any:
        """A timeline: one row a rank, a bar an operation, an arrow a message. Returns the axes."""
        from .plot import timeline

        return timeline(self, ax)

    def save_perfetto(self, path: str | Path) -> Path:
        """Write a trace that ui.perfetto.dev and chrome://tracing open; returns the path."""
        from .perfetto import save

        return save(self, path)
