"""The fork server: a process with torch imported and nothing else done, that forks ranks ahead and reaps them.

Started as `python -m utils.ranks.server FD` by the kernel, with one end of a socket pair. It speaks fixed-size messages
(`MESSAGE`): the kernel asks for ranks, gets each one's descriptors, and later says which to end. Ranks stand by, warmed
up, before anyone asks. The server leads its own session, so a keyboard interrupt never reaches it, and adopts orphans,
so whatever a rank started ends with the launch. When the kernel is gone (end of file on the socket), however it went,
every rank is killed and the server ends. It never touches CUDA and starts no thread, so forking is safe.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import struct
import sys
import time
import traceback

from . import pages
from .environment import environment
from .reaping import ended_children

# verb, number, number
MESSAGE = struct.Struct("<8sqq")
TAKE, RANK, STACK, END, ENDED, EXIT, HELLO = (
    b"take", b"rank", b"stack", b"end", b"ended", b"exit", b"hello",
)  # fmt: skip
DEFAULT_STANDBY = 4
MOST_STANDBY = 8


def message(verb: bytes, a: int = 0, b: int = 0) -> bytes:
    """One message of the protocol between kernel and server."""
    return MESSAGE.pack(verb, a, b)


def prctl(option: int, value: int) -> None:
    """Linux's prctl; elsewhere nothing (ranks there watch their socket instead)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Standby:
    """A rank forked ahead: its pid and the kernel's ends of its socket, stdout, stderr, stacks and journal."""

    def __init__(self, pid: int, fds: list[int]) -> None:
        self.pid, self.fds = pid, fds


class Server:
    """The server's half of `MESSAGE`. `rehearsing`: ranks that stand by long get ready further, to start quicker."""

    def __init__(self, control: socket.socket, rehearsing: bool = True) -> None:
        self.control, self.rehearsing = control, rehearsing
        self.standby: list[Standby] = []
        self.live: set[int] = set()
        self.want = DEFAULT_STANDBY
        self.busy = False
        self.tell = False  # whether exit codes of ranks being reaped are of interest

    # -- forking ---------------------------------------------------------------------------------------------------
    def fork(self) -> Standby:
        """One more rank, standing by."""
        from ..trace import journal
        from . import rank

        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(3)]
        book = journal.create()
        server_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self.forget()
                ours.close()
                for read, _ in pipes:
                    os.close(read)
                rank.main(theirs, [write for _, write in pipes], book, server_pid, self.rehearsing)
            except BaseException:  # a fault of ours: say it where the kernel reads the rank's last words
                traceback.print_exc()
            finally:
                os._exit(70)
        theirs.close()
        for _, write in pipes:
            os.close(write)
        return Standby(pid, [ours.detach(), *(read for read, _ in pipes), book])

    def forget(self) -> None:
        """In a fresh rank: close every descriptor of the server's and of the other ranks'."""
        self.selector.close()
        self.control.close()
        os.close(self.wake)
        signal.set_wakeup_fd(-1)
        for other in self.standby:
            for fd in other.fds:
                os.close(fd)

    def refill(self, count: int) -> None:
        while len(self.standby) < count:
            self.standby.append(self.fork())

    # -- the kernel's requests -------------------------------------------------------------------------------------
    def take(self, count: int) -> None:
        """Hand `count` ranks to the kernel: each one's pid and descriptors."""
        self.want = max(self.want, min(count, MOST_STANDBY))
        self.busy = True
        self.refill(count)
        taken, self.standby = self.standby[:count], self.standby[count:]
        for one in taken:
            self.live.add(one.pid)
            socket.send_fds(self.control, [message(RANK, one.pid)], one.fds)
            for fd in one.fds:
                os.close(fd)

    def end(self, patient: bool) -> None:
        """Kill what the launch used and whatever it started.

        `patient`: answer once all of it is reaped, exit codes told; else as soon as it is killed, and reap right after,
        which takes the kernel some milliseconds a process and would be the longest part of a short launch.
        """
        for pid in self.live:
            _kill(pid)
        self.tell = patient
        if not patient:
            self.control.sendall(message(ENDED))
        self.reap_all(self.live)
        self.live.clear()
        for _ in range(1000):  # whatever ranks started, and what that started
            found = self.orphans()
            for pid in found:
                _kill(pid)
            self.reap_all(set(found))
            if not found:
                break
        self.busy = False
        if patient:
            self.control.sendall(message(ENDED))

    def orphans(self) -> list[int]:
        """Children adopted from ranks that ended: everything of ours that is neither standing by nor a rank."""
        known = {one.pid for one in self.standby} | self.live
        return [pid for pid in _children() if pid not in known]

    def reap_all(self, pids: set[int]) -> None:
        for pid in list(pids):
            try:
                status = os.waitpid(pid, 0)[1]
            except ChildProcessError:
                continue
            if self.tell:
                self.control.sendall(message(EXIT, pid, os.waitstatus_to_exitcode(status)))

    def reap(self) -> None:
        """Report ranks that ended, bury orphans, and replace standby ranks that died."""
        for pid, code in ended_children():
            if pid in self.live:
                self.live.discard(pid)
                self.control.sendall(message(EXIT, pid, code))
            for one in [s for s in self.standby if s.pid == pid]:
                self.standby.remove(one)
                for fd in one.fds:
                    os.close(fd)

    # -- the loop --------------------------------------------------------------------------------------------------
    def serve(self) -> None:
        self.wake, wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.control, selectors.EVENT_READ)
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.control.sendall(message(HELLO, os.getpid()))
        self.refill(self.want)
        while True:
            # ranks are replaced once the launch is over, so that forking does not compete with it
            spare = not self.busy and len(self.standby) < self.want
            for key, _ in self.selector.select(0.0 if spare else None):
                if key.fd == self.wake:
                    os.read(self.wake, 4096)
                    self.reap()
                elif not self.request():
                    return
            else:
                if not self.busy and len(self.standby) < self.want:
                    self.standby.append(self.fork())

    def request(self) -> bool:
        """Serve one request; False when the kernel is gone."""
        data = b""
        while len(data) < MESSAGE.size:
            try:
                part = self.control.recv(MESSAGE.size - len(data))
            except ConnectionError:
                return False
            if not part:
                return False
            data += part
        verb, a, _ = MESSAGE.unpack(data)
        verb = verb.rstrip(b"\0")
        if verb == TAKE:
            self.take(a)
        elif verb == END:
            self.end(patient=bool(a))
        elif verb == STACK and a in self.live:
            _kill(a, signal.SIGUSR1)
        return True

    def close(self) -> None:
        """Kill every rank and everything ranks started, until nothing is left."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            children = _children() or [one.pid for one in self.standby] + list(self.live)
            for pid in children:
                _kill(pid)
            try:
                while True:
                    os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _children() -> list[int]:
    """Our children's pids, from the kernel's list (Linux); elsewhere none are adopted."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(p) for p in file.read().split()]
    except OSError:
        return []


def rehearse() -> None:
    """Do once what every rank does, so that it finds modules loaded and caches filled on pages shared with us.

    Afterwards this process is what it was: the group of one is gone, and so are gloo's threads.
    """
    _load_ahead()
    from ..trace import journal
    from . import rank

    book = journal.create()
    rank.rehearse(journal.Writer.open(book))
    os.close(book)


def settle() -> None:
    """Lay memory out for the forks to come: what is there now is left alone by their collections, in large pages."""
    gc.collect()
    gc.freeze()
    pages.gather()


def _load_ahead() -> None:
    """What torch imports at first use, 1 to 2 s in each rank: optimizers, DistributedDataParallel, FSDP, DTensor,
    dispatch modes and backward with a gradient all load its compiler, which nothing here compiles with."""
    import torch

    # importing it would make a folder under /tmp that nobody removes
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.dirname(torch.__file__)
    with environment(TORCHINDUCTOR_CACHE_DIR=folder):
        import torch._dynamo


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        os.setsid()
    except PermissionError:
        pass  # already a leader
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    import cloudpickle  # noqa: F401  ranks find it loaded
    import numpy.random  # noqa: F401
    import torch
    import torch.distributed  # noqa: F401

    from ..trace import install  # noqa: F401

    rehearse()
    settle()
    server = Server(control)
    try:
        server.serve()
    except (BrokenPipeError, ConnectionError):
        pass
    finally:
        server.close()


if __name__ == "__main__":
    main()
