"""The grader's end of the socket to an answering process. Nothing that arrives is believed before it is checked.

Time limits hold whatever the other side does: an interrupt first, then a kill. Output is read while it is written and
kept within bounds. A frame that no honest process sends ends the sandbox and raises `Forged`.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from utils.answering import protocol
from utils.answering.protocol import Settings
from utils.ranks import plain, wire
from utils.selfcheck.cell import INTERRUPT_S, CellRun
from utils.selfcheck.outputs import FLOOD_CHARS, OutputLog

from . import replies
from .base import Ended, Forged, Sandbox

MOST_SHOWN = 200  # things a cell may show besides text


@dataclass
class _Talk:
    """One request: what it waits for, and what came. `cause` is why it was cut short: stopped, flooded or "".

    `lost`: the other side hung up."""

    wanted: bytes
    request: int
    log: OutputLog = field(default_factory=OutputLog)
    reply: dict[str, Any] | None = None
    cause: str = ""
    lost: bool = False
    shown: int = 0

    @property
    def over(self) -> bool:
        return self.lost or self.reply is not None


class Channel:
    """Cells and probes of one answering process; `out` and `err` are the reading ends of what it prints."""

    def __init__(self, sandbox: Sandbox, sock: socket.socket, out: int, err: int) -> None:
        self.sandbox, self.sock, self.out, self.err = sandbox, sock, out, err
        self.inbox, self.outgoing, self.requests = wire.Inbox(protocol.MOST_ANSWER + (1 << 20)), bytearray(), 0
        self.alive = True
        self.changed: list[str] = []  # what cells have replaced in the process, as it tells
        sock.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(sock, selectors.EVENT_READ, "sock")
        self.decoders = {}
        for fd, name in ((out, "stdout"), (err, "stderr")):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, name)
            self.decoders[name] = codecs.getincrementaldecoder("utf-8")("replace")

    # -- what can be asked -----------------------------------------------------------------------------------------
    def set_up(self, settings: Settings, limit: float) -> None:
        """Send the settings and wait until the process is ready. Raises Ended with what it said last."""
        talk = _Talk(protocol.READY, 0)
        self._queue(protocol.SETTINGS, settings.fields())
        self._pump(talk, limit)
        if talk.reply is not None and "text" not in talk.reply:
            return
        self._pump_pipes(talk)
        said = talk.reply["text"] if talk.reply else "".join(o.get("text", "") for o in talk.log.outputs()).strip()
        late = "" if talk.over else f" within {limit:.0f} s"
        self.alive = False
        raise Ended(f"the answering process did not start{late}: {said[-2000:] or 'it said nothing'}")

    def cell(self, number: int, source: str, limit_s: float) -> CellRun:
        """Run cell `number` for at most `limit_s` seconds.

        status: ok; error; stopped (time limit) or flooded (output), and the process goes on; died, and the channel is
        no longer `alive`. Raises Forged.
        """
        if not self.alive:
            return CellRun("died", exit_code=self.sandbox.exit_code(0))
        started = time.monotonic()
        talk = self._talk(protocol.CELL, {"number": number, "source": source}, protocol.DONE, limit_s)
        done = talk.reply
        self.changed = done["changed"] if done else self.changed
        run = CellRun(talk.cause or (done["status"] if done else "died"))
        if done and done["status"] == "exited":
            self._hang_up(INTERRUPT_S)
            run.status = "died"
        if done and done["error"]:
            error = done["error"]
            run.ename, run.evalue, run.line = error["kind"], error["text"], error["line"]
            talk.log.error(run.ename, run.evalue, (error["shown"] or error["traceback"]).splitlines())
        if not self.alive:
            run.exit_code = self.sandbox.exit_code()
            self._tell_of_end(talk, run)
        run.seconds, run.outputs = time.monotonic() - started, talk.log.outputs()
        return run

    def _tell_of_end(self, talk: _Talk, run: CellRun) -> None:
        reason = self.sandbox.ended_because
        if reason:
            run.status, run.ename, run.evalue = "died", "Killed", reason
        elif talk.cause:
            reason = "the process did not react to an interrupt and was killed"
        if reason:
            talk.log.error("Killed", reason, [])

    def probe(self, payload: bytes, options: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Run a probe: `payload` is `utils.ranks.ship.pack(fn, args, kwargs)[0]`, `options` are keywords of `launch`.

        Returns the fields of an ANSWER, a run's or an error's, as they came: only their form as plain data is certain.
        Raises Ended where the process did not survive the probe, Forged.
        """
        if not self.alive:
            raise Ended("the answering process has ended already", self.sandbox.exit_code(0))
        fields = {"payload": payload, "options": dict(options)}
        talk = self._talk(protocol.PROBE, fields, protocol.ANSWER, limit_s)
        if talk.reply is None:
            raise Ended(self._why(limit_s, talk), self.sandbox.exit_code())
        return talk.reply

    def _why(self, limit: float, talk: _Talk) -> str:
        if self.sandbox.ended_because:
            return f"your code was stopped: {self.sandbox.ended_because}"
        if talk.cause:
            return f"your code did not stop after {limit:.0f} s, so its process was ended"
        code = self.sandbox.exit_code()
        how = "" if code is None else f" (exit code {code})" if code >= 0 else f" (killed by signal {-code})"
        return f"your code ended its own process{how}"

    def close(self) -> None:
        """Let go of the socket and the pipes."""
        self.alive = False
        self.selector.close()
        self.sock.close()
        for fd in (self.out, self.err):
            os.close(fd)

    # -- one exchange ----------------------------------------------------------------------------------------------
    def _talk(self, kind: bytes, fields: dict[str, Any], wanted: bytes, limit: float) -> _Talk:
        """Ask, and wait for the reply within the limit; what does not stop is interrupted twice, then killed."""
        self.requests += 1
        talk = _Talk(wanted, self.requests)
        self._queue(kind, {"request": self.requests, **fields})
        self._pump(talk, limit)
        if not talk.over:
            talk.cause = "flooded" if talk.log.flooded else "stopped"
            for _ in range(2):
                self.sandbox.interrupt()
                self._pump(talk, INTERRUPT_S)
                if talk.over:
                    break
            else:
                self._hang_up(0)
        self._pump_pipes(talk)
        if talk.lost:
            self._hang_up(0)
        return talk

    def _queue(self, kind: bytes, fields: dict[str, Any] | None = None) -> None:
        body = b"" if fields is None else plain.encode(fields)
        self.outgoing += wire.HEAD.pack(len(body), kind) + body
        self.selector.modify(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, "sock")

    def _pump(self, talk: _Talk, seconds: float) -> None:
        """Read and write until the reply is there, the other side is gone, output floods, or time is up."""
        until = time.monotonic() + seconds
        while not talk.over and (left := until - time.monotonic()) > 0:
            if talk.log.flooded and not talk.cause:
                return
            ready = self.selector.select(min(left, 0.5))
            for key, events in sorted(ready, key=lambda item: item[0].data == "sock"):  # text before what follows it
                if key.data != "sock":
                    self._read_pipe(key.fd, key.data, talk)
                    continue
                if events & selectors.EVENT_WRITE:
                    self._write()
                if events & selectors.EVENT_READ:
                    self._read(talk)

    def _write(self) -> None:
        try:
            sent = self.sock.send(self.outgoing[: 1 << 20])
            del self.outgoing[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.outgoing.clear()  # gone: reading will say so
        if not self.outgoing:
            self.selector.modify(self.sock, selectors.EVENT_READ, "sock")

    def _read(self, talk: _Talk) -> None:
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            talk.lost = True
            return
        try:
            frames = self.inbox.feed(data)
        except ValueError as error:
            self._condemn(str(error))
        for kind, body in frames:
            self._frame(talk, kind, body)

    def _frame(self, talk: _Talk, kind: bytes, body: bytes) -> None:
        """Take one frame: what was waited for, or something shown. Anything else was made by nobody of ours."""
        if kind == protocol.OUTPUT:
            if len(body) > protocol.MOST_OUTPUT:
                self._condemn(f"something shown of {len(body)} bytes")
            self._pump_pipes(talk)
            self._show(talk, self._decode(body, replies.shown))
            self._queue(protocol.SEEN)
        elif talk.reply is not None or kind not in (talk.wanted, protocol.FAILED if talk.request == 0 else talk.wanted):
            self._condemn(f"a frame of kind {kind!r} that nobody asked for")
        else:
            check = replies.CHECKS[kind]
            talk.reply = self._decode(body, lambda fields: check(fields, talk.request))

    def _decode(self, body: bytes, check: Callable[[Any], Any]) -> Any:
        """A checked body. Decoding calls no code of the sender; whatever goes wrong in it was meant to."""
        try:
            return check(replies.decode(body))
        except replies.NotAReply as error:
            why = str(error)
        except Exception as error:
            why = f"a frame that cannot be read: {type(error).__name__}: {str(error)[:200]}"
        self._condemn(why)

    def _show(self, talk: _Talk, fields: dict[str, Any]) -> None:
        if fields["kind"] == "clear":
            talk.log.clear()
            return
        talk.shown += 1
        if talk.shown > MOST_SHOWN:
            talk.log.seen += FLOOD_CHARS // (10 * MOST_SHOWN)  # showing without end is a flood too
            return
        output = {"output_type": fields["kind"], "data": fields["data"], "metadata": {}}
        if fields["kind"] == "execute_result":
            output["execution_count"] = None
        talk.log.rich(output)

    def _read_pipe(self, fd: int, name: str, talk: _Talk) -> bool:
        """Take what was printed; False where there is nothing now."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self.selector.unregister(fd)
            return False
        talk.log.stream(name, self.decoders[name].decode(data))
        return True

    def _pump_pipes(self, talk: _Talk) -> None:
        """What was printed up to now, at most some megabytes of it."""
        for fd, name in ((self.out, "stdout"), (self.err, "stderr")):
            for _ in range(64):
                if not self._read_pipe(fd, name, talk):
                    break

    def _hang_up(self, patience: float) -> None:
        """End the process: wait for it to go, then kill it."""
        self.alive = False
        if self.sandbox.exit_code(max(patience, 0.2)) is None:
            self.sandbox.kill()

    def _condemn(self, what: str) -> Any:
        """End a process that sent what an honest one never sends."""
        self.alive = False
        self.sandbox.kill()
        raise Forged(f"the process with the student's code sent {what}")
