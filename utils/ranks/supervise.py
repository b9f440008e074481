"""Watching a run: values and output as they come, deadlocks as soon as they are proved, and the first failure.

The kernel sleeps in `select` on the ranks' sockets and pipes. Only when nothing arrived for a while does it look into
the journals. A run ends when every rank sent its value, when one failed, when the journals prove a deadlock or show a
mismatch that blocks, or at the time limit; whichever way, every rank is then killed and reaped.
"""

from __future__ import annotations

import os
import select
import selectors
import time
from dataclasses import dataclass, replace
from typing import Any

from ..trace import journal as jn
from ..trace import matching
from ..trace.diagnose import Fault, RankState, faults, proved
from ..trace.events import Event, Trace, read_events
from . import plain, wire
from .client import Client, Rank
from .output import Capture
from .stacks import asleep, innermost

POLL = 0.1  # seconds between looks into the journals
QUIET = 3  # looks with nothing new before a blocked, mismatched run is called
LONG_QUIET = 10  # looks after which gloo's own thread may spin (it does when a message was cancelled)
GRACE = 0.3  # seconds to hear of other failures after the first
MOST_BYTES = 4 << 30


@dataclass
class Outcome:
    """How a run ended: `why` is "done", "failed", "deadlock", "mismatch", "timeout" or "interrupted"."""

    why: str
    pairing: matching.Pairing
    states: list[RankState]
    fault: Fault | None = None


class Supervisor:
    """One run of some ranks, from the jobs sent to the ranks gone."""

    def __init__(
        self, client: Client, ranks: list[Rank], limit: float | None, view: Any, ask: Any, watch: bool
    ) -> None:
        self.client, self.ranks, self.limit, self.view, self.ask, self.watch = (
            client,
            ranks,
            limit,
            view,
            ask,
            watch,
        )
        self.results: list[dict[str, Any] | None] = [None] * len(ranks)
        self.errors: dict[int, dict[str, Any]] = {}
        self.gone: set[int] = set()
        self.out = [Capture() for _ in ranks]
        self.err = [Capture() for _ in ranks]
        self.inboxes = [wire.Inbox(MOST_BYTES) for _ in ranks]
        self.find_class: Any = None
        self.ended = self.server_lost = False
        self.selector = selectors.DefaultSelector()
        for r, rank in enumerate(ranks):
            os.set_blocking(rank.out, False)
            os.set_blocking(rank.err, False)
            os.set_blocking(rank.stacks, False)
            self.selector.register(rank.sock, selectors.EVENT_READ, (r, "sock"))
            self.selector.register(rank.out, selectors.EVENT_READ, (r, "out"))
            self.selector.register(rank.err, selectors.EVENT_READ, (r, "err"))

    # -- the loop --------------------------------------------------------------------------------------------------
    def watch_run(self) -> Outcome:
        """Follow the run to its end."""
        started = time.monotonic()
        seen: tuple[Any, ...] = ()
        quiet, looked = 0, started
        while not self.over():
            now = time.monotonic()
            if self.limit is not None and now - started > self.limit:
                return self.outcome("timeout")
            self.pump(POLL)
            if self.watch and time.monotonic() - looked >= POLL:
                looked = time.monotonic()
                marks = self.marks()
                quiet = quiet + 1 if marks == seen else 0
                seen = marks
                found = self.stuck(quiet)
                if found is not None:
                    return found
        if self.errors or self.gone:
            self.drain(GRACE)
            return self.outcome("failed")
        return self.outcome("done")

    def over(self) -> bool:
        return bool(self.errors or self.gone) or all(r is not None for r in self.results)

    def pump(self, patience: float) -> bool:
        """Handle what arrived within `patience` seconds."""
        ready = self.selector.select(patience)
        for key, _ in ready:
            rank, kind = key.data
            if kind == "sock":
                self.read_socket(rank)
            else:
                self.read_pipe(key.fileobj, rank, kind)
        return bool(ready)

    def read_socket(self, r: int) -> None:
        sock = self.ranks[r].sock
        try:
            data = sock.recv(1 << 20)
        except (ConnectionError, OSError):
            data = b""
        if not data:
            self.selector.unregister(sock)
            if self.results[r] is None and r not in self.errors:
                self.gone.add(r)
            return
        for kind, body in self.inboxes[r].feed(data):
            self.message(r, kind, body)

    def message(self, r: int, kind: bytes, body: bytes) -> None:
        if kind == wire.VALUE:
            self.results[r] = plain.decode(body, self.find_class)
        elif kind == wire.ERROR:
            self.errors[r] = plain.decode(body)
        elif kind == wire.ASK and self.ask is not None:
            self.pump_pipes()
            wire.send(self.ranks[r].sock, wire.ANSWER, self.ask(body.decode()).encode())

    def read_pipe(self, fd: Any, r: int, kind: str) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(fd)
            return
        text = (self.out if kind == "out" else self.err)[r].feed(data)
        if kind == "out" and self.view is not None:
            self.view.feed(r, text)

    def pump_pipes(self) -> None:
        """Everything the ranks have printed by now."""
        for r, rank in enumerate(self.ranks):
            for fd, kind in ((rank.out, "out"), (rank.err, "err")):
                for _ in range(64):
                    if fd not in self.selector.get_map() or not select.select([fd], [], [], 0)[0]:
                        break
                    self.read_pipe(fd, r, kind)

    def drain(self, seconds: float) -> None:
        """Hear what else arrives for a moment, or until every rank has said something."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            heard = len(self.errors) + len(self.gone) + sum(r is not None for r in self.results)
            if heard >= len(self.ranks):
                break
            self.pump(max(0.0, until - time.monotonic()))

    # -- looking into the journals ---------------------------------------------------------------------------------
    def marks(self) -> tuple[Any, ...]:
        """What changes whenever anything happens: each rank's count, blocked operation and state."""
        return tuple(
            (j.get(jn.COUNT_AT), j.get(jn.BLOCKED_AT), j.get(jn.STATE_AT)) for j in (r.journal for r in self.ranks)
        )

    def stuck(self, quiet: int) -> Outcome | None:
        """A proved deadlock, or a mismatch that has kept every rank waiting; None while there is hope."""
        if quiet < 1 or not all(r.journal.get(jn.BLOCKED_AT) or r.journal.get(jn.STATE_AT) for r in self.ranks):
            return None
        if not all(asleep(r.pid, quiet >= LONG_QUIET) for r in self.ranks):
            return None  # on a busy machine a wait may be over and its rank not yet back on a core
        before = self.marks()
        pairing, states = self.look()
        if self.marks() != before or not any(s.waiting for s in states):
            return None
        if any(rank.journal.get(jn.COUNT_AT) > jn.CAPACITY for rank in self.ranks):
            return None
        found = faults(pairing, finished=False)
        if found and quiet >= QUIET:
            return Outcome("mismatch", pairing, states, found[0])
        if not found and proved(pairing, states):
            return Outcome("deadlock", pairing, states)
        return None

    def events(self) -> list[list[Event]]:
        origin = self.origin()
        return [read_events(r, rank.journal.snapshot(), origin) for r, rank in enumerate(self.ranks)]

    def origin(self) -> int:
        return min((s for s in (r.journal.get(jn.START_AT) for r in self.ranks) if s > jn.MEETING), default=0)

    def look(self) -> tuple[matching.Pairing, list[RankState]]:
        """The operations of all ranks, paired, and where each rank is."""
        rows = self.events()
        pairing = matching.pair([e for row in rows for e in row])
        return pairing, [self.state(r, rows[r]) for r in range(len(self.ranks))]

    def state(self, r: int, row: list[Event]) -> RankState:
        journal = self.ranks[r].journal
        code, threads = journal.get(jn.STATE_AT), journal.get(jn.THREADS_AT)
        waiting = None
        if r in self.gone:
            name = "gone"
        else:
            name = {jn.RETURNED: "returned", jn.RAISED: "raised"}.get(code, "running")
        blocked = journal.blocked()
        if blocked is not None and name in ("running", "gone"):
            waiting = next((e for e in row if e.seq == blocked), None)
        if name == "raised" and row and row[-1].failed:
            waiting = row[-1]
        return RankState(r, name, waiting, threads, self.ranks[r].exit_code, stage=self.stage(r))

    def stage(self, r: int) -> str:
        """How far a rank of several came before its function began; "" once that has."""
        began = self.ranks[r].journal.get(jn.START_AT)
        return "" if began > jn.MEETING or len(self.ranks) == 1 else "meeting" if began else "absent"

    def outcome(self, why: str) -> Outcome:
        """The outcome with the ranks' states; where a rank is stuck in its own code, with the line it is at."""
        pairing, states = self.look()
        if why in ("timeout", "interrupted"):
            states = [self.with_line(s) for s in states]
        self.pump_pipes()
        return Outcome(why, pairing, states)

    def with_line(self, state: RankState) -> RankState:
        if state.over or state.waiting is not None or state.stage:
            return state
        return replace(state, at=self.line_of(state.rank))

    def line_of(self, r: int) -> tuple[str, int, str] | None:
        """The innermost line of the student's code that a rank is at, asked of faulthandler by a signal."""
        try:
            self.client.ask_stack(self.ranks[r])
        except OSError:
            return None
        text, fd = "", self.ranks[r].stacks
        until = time.monotonic() + 0.5
        while time.monotonic() < until and "\n\n" not in text:
            if select.select([fd], [], [], 0.1)[0]:
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                text += data.decode(errors="replace")
            elif text:
                break
        return innermost(text)

    def trace(self, rows: list[list[Event]] | None = None) -> Trace:
        """The finished run's trace, events in the order they were issued."""
        rows = rows or self.events()
        complete = all(rank.journal.get(jn.COUNT_AT) <= jn.CAPACITY for rank in self.ranks)
        return Trace(
            len(self.ranks),
            sorted((e for row in rows for e in row), key=lambda e: (e.start, e.rank)),
            self.seconds(),
            complete,
        )

    def seconds(self) -> float:
        ends = [r.journal.get(jn.STATE_TIME_AT) for r in self.ranks]
        return max(0, max(ends) - self.origin()) / 1e9 if any(ends) else 0.0

    def end(self, patient: bool) -> None:
        """Kill every rank and what it started; `patient`: wait until all is reaped and exit codes are known."""
        self.ended = True
        try:
            self.client.end(self.ranks, patient)
        except OSError:
            self.server_lost = True  # its ranks died with it

    def close(self) -> None:
        """End every rank, then let go of what the kernel holds of them."""
        if not self.ended:
            self.end(patient=False)
        self.pump_pipes()
        self.selector.close()
        for rank in self.ranks:
            rank.close()
        if self.view is not None:
            self.view.close()
