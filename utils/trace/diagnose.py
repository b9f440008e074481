"""What went wrong between ranks, proved from their journals: mismatched operations, and deadlocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .events import Event
from .matching import Pairing

_SAME_COUNT = ("broadcast", "reduce", "all_reduce", "all_gather", "gather", "scatter")

SWAP_REACH = 64  # how far apart two swapped collectives are looked for


@dataclass(frozen=True)
class Fault:
    """Operations that pair up but do not fit: `what` in words, and the events at odds (the first is the reference)."""

    what: str
    events: tuple[Event, ...]


@dataclass(frozen=True)
class RankState:
    """Where a rank was when somebody looked: running, returned, raised or gone, and the operation it waits for.

    stage: before the function began, "absent" until the rank came to meet the others, then "meeting"; "" afterwards.
    """

    rank: int
    state: str
    waiting: Event | None = None
    threads: int = 1
    code: int | None = None
    at: tuple[str, int, str] | None = None
    stage: str = ""

    @property
    def over(self) -> bool:
        """True when the rank will issue no more operations."""
        return self.state != "running"


def faults(pairing: Pairing, finished: bool) -> list[Fault]:
    """Everything that pairs up but does not fit, in the order of the runs. `finished`: all ranks returned."""
    found = [f for key in pairing.collectives for f in _collective_faults(pairing, key, finished)]
    return found + list(_message_faults(pairing))


def _collective_faults(pairing: Pairing, key: str, finished: bool) -> Iterator[Fault]:
    issued, members = pairing.collectives[key], pairing.groups[key].ranks
    rows = [issued.get(r, []) for r in members]
    if not rows:
        return  # the journal never said who belongs to this group
    for column in zip(*rows):
        what = _differs(column)
        if what:
            yield Fault(what, tuple(column))
            return  # what follows one mismatch is its consequence
    yield from _swapped(rows)
    longest = max(rows, key=len)
    short = [r for r, row in zip(members, rows) if len(row) < len(longest)]
    if finished and short:
        at = min(len(row) for row in rows)
        late = [r for r, row in zip(members, rows) if len(row) == at]
        event = longest[at]
        yield Fault(f"{names(late)} never issued {label(event)}, which others did", (event,))


def _differs(column: tuple[Event, ...]) -> str:
    """How the collectives that pair up differ, in words; empty when they fit."""
    first = column[0]
    for kind in ("op", "dtype", "reduce", "peer"):
        values = [getattr(e, kind) for e in column]
        if len(set(values)) > 1:
            if kind == "op":
                shown = _by_rank(column, [label(e, False) for e in column])
                return f"ranks issued different collectives at the same place: {shown}"
            noun = {"dtype": "dtypes", "reduce": "reductions", "peer": "roots"}[kind]
            return f"{noun} differ in {label(first)}: {_by_rank(column, values)}"
    counts = [e.numel for e in column]
    if first.op in _SAME_COUNT and len(set(counts)) > 1:
        return f"sizes differ in {label(first)}: {_by_rank(column, [f'{n} elements' for n in counts])}"
    return _lists_differ(column)


def _lists_differ(column: tuple[Event, ...]) -> str:
    first = column[0]
    if first.op == "all_to_all":
        return _splits_differ(column)
    extras = [e.extra for e in column]
    if first.op in ("reduce_scatter", "new_group", "all_gather", "all_reduce") and len(set(extras)) > 1:
        noun = "members" if first.op == "new_group" else "chunk sizes"
        return f"{noun} differ in {label(first)}: {_by_rank(column, [f'[{x}]' for x in extras])}"
    return ""


def _splits_differ(column: tuple[Event, ...]) -> str:
    """All-to-all fits when what i sends to j is what j expects from i."""
    if any(len(e.sizes()) != 2 or any(len(part) != len(column) for part in e.sizes()) for e in column):
        return f"split sizes of {label(column[0])} do not have one entry a rank"
    for i, sender in enumerate(column):
        for j, receiver in enumerate(column):
            sent, expected = sender.sizes()[0][j], receiver.sizes()[1][i]
            if sent != expected:
                return (
                    f"splits differ in {label(sender)}: rank {sender.rank} sends {sent} elements to rank "
                    f"{receiver.rank}, which expects {expected}"
                )
    return ""


def _swapped(rows: list[list[Event]]) -> Iterator[Fault]:
    """Two collectives that fit each other, in the other order on one rank: gloo swaps their data in silence."""
    for row in rows[1:]:
        pairs = [(a, b) for a, b in zip(rows[0], row, strict=False) if a.op not in ("barrier", "new_group")]
        odd = [(a, b) for a, b in pairs if (a.line, a.name) != (b.line, b.name)]
        for at, (a, c) in enumerate(odd):
            for b, d in odd[at + 1 : at + 1 + SWAP_REACH]:
                if _inverted(a, b, c, d):
                    yield Fault(
                        f"rank {c.rank} issued two collectives in the other order than rank {a.rank}: "
                        f"{_what(a, b)} and {_what(b, a)} fit each other, so their data was swapped without an error",
                        (a, c),
                    )
                    return


def _inverted(a: Event, b: Event, c: Event, d: Event) -> bool:
    """Whether one rank's a, b are another's d, c: by their lines, or by the variables that were passed."""
    if a.line != b.line or a.name != b.name:
        key = [(e.file, e.line, e.name) for e in (a, b, c, d)]
        if key[0] == key[3] and key[1] == key[2]:
            return True
    if len({(e.file, e.function) for e in (a, b, c, d)}) > 1:
        return False
    w, x, y, z = (set(e.name.split(",")) - {""} for e in (a, b, c, d))
    return bool(w & z and x & y) and not (w & y or x & z or w & x)


def _what(event: Event, other: Event) -> str:
    """`all_reduce #1 (group world) of a (line 7)`: by the variables that tell it from the other."""
    own = [n for n in event.name.split(",") if n and n not in other.name.split(",")]
    return f"{label(event)}{f' of {own[0]}' if own else ''} (line {event.line})"


def _message_faults(pairing: Pairing) -> Iterator[Fault]:
    for key, sends in pairing.sends.items():
        for send, recv in zip(sends, pairing.recvs.get(key, []), strict=False):
            pair = f"rank {send.rank}'s {label(send)} and rank {recv.rank}'s {label(recv)}"
            if send.dtype != recv.dtype:
                yield Fault(f"dtypes differ between {pair}: {send.dtype} sent, {recv.dtype} expected", (send, recv))
            elif send.nbytes != recv.nbytes:
                counts = f"{send.numel} elements sent, {recv.numel} expected"
                yield Fault(f"sizes differ between {pair}: {counts}", (send, recv))


def unmatched(pairing: Pairing) -> list[Event]:
    """Sends that nobody received and receives that nobody answered, counted once all ranks are done."""
    loose: list[Event] = []
    for key in set(pairing.sends) | set(pairing.recvs):
        sends, recvs = pairing.sends.get(key, []), pairing.recvs.get(key, [])
        taken = len(pairing.any_recvs.get((key[0], key[2], key[3]), []))
        loose += sends[len(recvs) + taken :] + recvs[len(sends) :]
    return loose


def proved(pairing: Pairing, states: list[RankState]) -> bool:
    """True when every rank that is not over waits, at least one does, and what was issued lets no wait end."""
    running = [s for s in states if not s.over]
    if not running or any(s.waiting is None or s.threads > 1 for s in running):
        return False
    return not any(pairing.can_end(s.waiting) for s in running if s.waiting is not None)


def label(event: Event, with_group: bool = True) -> str:
    """`all_reduce #2 (group world)`, `send #1 to rank 3`, `recv #1 from any rank`."""
    if event.op in ("send", "recv"):
        other = "any rank" if event.peer is None else f"rank {event.peer}"
        return f"{event.op} #{event.number} {'to' if event.op == 'send' else 'from'} {other}"
    return f"{event.op} #{event.number}" + (f" (group {event.group.name})" if with_group else "")


def names(ranks: list[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 2`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _by_rank(column: tuple[Event, ...], values: list[object]) -> str:
    """`3 elements on rank 0, 5 elements on ranks 1, 2`."""
    seen: dict[object, list[int]] = {}
    for event, value in zip(column, values):
        seen.setdefault(value, []).append(event.rank)
    return ", ".join(f"{value} on {names(ranks)}" for value, ranks in seen.items())
