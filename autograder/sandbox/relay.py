"""The grader's end of `kubectl exec`: one stream of frames on the one side, a socket and two pipes on the other.

A channel reads from these as it does from a local process. Frames are kept in the order in which they came, so text
stays before what followed it. Bytes that are no frame of `porter`'s end the connection with `fault`.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import tempfile
import threading
from collections import deque
from typing import Any

from .kubectl import last_line
from .porter import CHUNK, HEAD

MOST_FRAME = 1 << 20
MOST_HELD = 4 << 20  # bytes that wait for the channel to read them, before no more are taken
SEND_CHUNK = 1 << 18


class Relay:
    """Frames of one `kubectl exec`, carried by a thread until the other side or `close` ends them."""

    def __init__(self, command: list[str]) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        self.channel, self.ours = socket.socketpair()
        (self.out, out), (self.err, err) = os.pipe(), os.pipe()
        self.targets: dict[bytes, int] = {b"C": self.ours.fileno(), b"O": out, b"E": err}
        self.wake, self.wake_write = os.pipe()
        for fd in (*self.targets.values(), self.wake, self.process.stdin.fileno(), self.process.stdout.fileno()):
            os.set_blocking(fd, False)
        self.inbox, self.outgoing, self.lock = bytearray(), bytearray(), threading.Lock()
        self.held: deque[tuple[bytes, memoryview]] = deque()
        self.told: dict[bytes, dict[str, Any]] = {}  # the last of each kind of JSON
        self.news = threading.Condition()
        self.over, self.fault, self.closing, self.deaf, self.heard = False, "", False, False, ""
        self.thread = threading.Thread(target=self._run, name="pod relay", daemon=True)
        self.thread.start()

    # -- what can be asked -----------------------------------------------------------------------------------------
    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Queue a frame; it is sent as fast as the other side takes it."""
        with self.lock:
            self.outgoing += HEAD.pack(kind, len(body)) + body
        self._poke()

    def usage(self, patience: float) -> dict[str, Any] | None:
        """Ask the pod what was used so far; None where it does not answer in time."""
        with self.news:
            self.told.pop(b"U", None)
        self.send(b"U")
        return self.wait(b"U", patience)

    def wait(self, kind: bytes, patience: float) -> dict[str, Any] | None:
        """The JSON of a kind, waited for at most `patience` seconds."""
        with self.news:
            self.news.wait_for(lambda: kind in self.told or self.over, patience)
            return self.told.get(kind)

    def ended(self, patience: float) -> bool:
        """Whether the other side has told its end, or is gone."""
        with self.news:
            return self.news.wait_for(lambda: self.over or self.last is not None, patience)

    @property
    def last(self) -> dict[str, Any] | None:
        """How the answering process ended, once the pod has told it."""
        return self.told.get(b"X")

    def words(self) -> str:
        """The last line that kubectl said."""
        if not self.said.closed:
            self.said.seek(0)
            self.heard = last_line(self.said.read(1 << 16).decode(errors="replace"))
        return self.heard

    def close(self) -> None:
        """Hang up, and see kubectl end. The channel's own ends are the channel's to close."""
        if self.closing:
            return
        self.closing = True
        self._poke()
        self.thread.join()
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.words()
        self.said.close()
        for fd in (self.wake, self.wake_write):
            os.close(fd)

    def close_channel(self) -> None:
        """Close what a channel would have taken over, where none was made."""
        self.channel.close()
        for fd in (self.out, self.err):
            os.close(fd)

    def _poke(self) -> None:
        try:
            os.write(self.wake_write, b".")
        except OSError:
            pass  # full, which wakes it as well; or closed

    # -- the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                while not self.closing and not (self.over and not self.held):
                    self._once(selector)
        finally:
            self._hang_up()

    def _once(self, selector: selectors.BaseSelector) -> None:
        stdin, stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        wanted = {self.wake: selectors.EVENT_READ}
        if not self.over and sum(len(data) for _, data in self.held) < MOST_HELD:
            wanted[stdout] = selectors.EVENT_READ
        if not (self.over or self.deaf) and len(self.outgoing) < MOST_HELD:
            wanted[self.targets[b"C"]] = selectors.EVENT_READ
        if self.outgoing and not self.over:
            wanted[stdin] = selectors.EVENT_WRITE
        if self.held:
            fd = self.targets[self.held[0][0]]
            wanted[fd] = wanted.get(fd, 0) | selectors.EVENT_WRITE
        _watch(selector, wanted)
        for key, events in selector.select(0.5):
            if key.fd == self.wake:
                os.read(self.wake, 4096)
            elif key.fd == stdout:
                self._hear()
            elif key.fd == stdin:
                self._speak(stdin)
            elif events & selectors.EVENT_READ:
                self._take()
        self._pass_on()

    def _hear(self) -> None:
        try:
            data = os.read(self.process.stdout.fileno(), CHUNK * 4)
        except BlockingIOError:
            return
        if not data:
            self._end()
            return
        self.inbox += data
        while len(self.inbox) >= HEAD.size and not self.fault:
            kind, size = HEAD.unpack_from(self.inbox)
            if kind not in b"HCOEUX" or size > MOST_FRAME:
                self.fault = "bytes that are no frame of ours"
            elif len(self.inbox) < HEAD.size + size:
                return
            else:
                body = bytes(self.inbox[HEAD.size : HEAD.size + size])
                del self.inbox[: HEAD.size + size]
                self._frame(kind, body)
        if self.fault:
            self.held.clear()
            self._end()

    def _frame(self, kind: bytes, body: bytes) -> None:
        if kind in self.targets:
            if body:
                self.held.append((kind, memoryview(body)))
            return
        try:
            told = json.loads(body)
        except ValueError:
            told = None
        if not _is_word(kind, told):
            self.fault = f"a word of kind {kind.decode()} that the program in the pod does not say"
            return
        with self.news:
            self.told[kind] = told
            self.news.notify_all()
        if kind == b"X":
            self._end()

    def _end(self) -> None:
        with self.news:
            self.over = True
            self.news.notify_all()

    def _speak(self, stdin: int) -> None:
        try:
            with self.lock:
                del self.outgoing[: os.write(stdin, self.outgoing[:SEND_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            with self.lock:
                self.outgoing.clear()  # gone: reading will say so

    def _take(self) -> None:
        """Bytes of the channel, on their way to the pod."""
        try:
            data = self.ours.recv(SEND_CHUNK)
        except (BlockingIOError, OSError):
            return
        if data:
            self.send(b"C", data)
        else:
            self.deaf = True  # the channel was closed

    def _pass_on(self) -> None:
        while self.held:
            kind, data = self.held[0]
            try:
                sent = os.write(self.targets[kind], data[:CHUNK])
            except BlockingIOError:
                return
            except OSError:
                sent = len(data)  # nobody reads this any more
            if sent == len(data):
                self.held.popleft()
            else:
                self.held[0] = (kind, data[sent:])

    def _hang_up(self) -> None:
        self._end()
        self.ours.close()
        for kind in (b"O", b"E"):
            os.close(self.targets[kind])


def _watch(selector: selectors.BaseSelector, wanted: dict[int, int]) -> None:
    """Have a selector watch exactly what is wanted."""
    for fd in [fd for fd in selector.get_map() if fd not in wanted]:
        selector.unregister(fd)
    for fd, events in wanted.items():
        if fd not in selector.get_map():
            selector.register(fd, events)
        elif selector.get_key(fd).events != events:
            selector.modify(fd, events)


FIELDS = {
    b"H": {"python": list, "network": str},
    b"U": {"memory": int, "processes": int, "loopback": int, "oom": int},
}  # fmt: skip
FIELDS[b"X"] = FIELDS[b"U"] | {"code": int, "reason": str}


def _is_word(kind: bytes, told: Any) -> bool:
    """Whether a JSON value is one that `porter` sends: its fields, each of its type and no more than numbers go."""
    fields = FIELDS[kind]
    return (
        type(told) is dict
        and set(told) == set(fields)
        and all(type(told[name]) is kind_ for name, kind_ in fields.items())
        and all(abs(value) < 1 << 62 for value in told.values() if type(value) is int)
    )
