"""The answering process: sets itself up, gives up its privileges, then runs cells and probes until the grader hangs up.

    python -m utils.answering --fds CHANNEL OUT ERR       inherited descriptors
    python -m utils.answering --connect PATH              a Unix socket, over which OUT and ERR come

The rank server is forked from here before any student code runs, so that nobody imports torch again.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
from typing import Any

from ..ranks import client, plain, wire
from . import protocol
from .confine import confine, copy_submission, let_go
from .protocol import Settings


class Link:
    """The process's end of the channel, safe to use from more than one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.lock, self.pid = sock, threading.Lock(), os.getpid()

    def send(self, kind: bytes, fields: dict[str, Any]) -> None:
        """Send one frame; a forked copy of this process, which a cell may have made, has no say."""
        if os.getpid() != self.pid:
            return
        body = plain.encode(fields)
        with self.lock:
            wire.send(self.sock, kind, body)

    def receive(self) -> tuple[bytes, dict[str, Any]] | None:
        """The grader's next frame; None when it hung up."""
        message = wire.receive(self.sock)
        return None if message is None else (message[0], plain.decode(message[1]) if message[1] else {})

    def emit(self, kind: str, data: dict[str, str]) -> None:
        """Tell of something shown, after what was printed before it."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self.send(protocol.OUTPUT, {"kind": kind, "data": data})
        if threading.current_thread() is threading.main_thread() and os.getpid() == self.pid:
            wire.receive(self.sock)  # SEEN: what is printed from now on comes after it


def preload() -> None:
    """Import what answers use, so that processes forked from here have it."""
    import cloudpickle  # noqa: F401
    import IPython.core.interactiveshell  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import matplotlib_inline.backend_inline  # noqa: F401
    import numpy.random  # noqa: F401
    import torch
    import torch.distributed

    from .. import check  # noqa: F401
    from ..ranks import server
    from ..trace import install  # noqa: F401
    from . import probes, seal, shell  # noqa: F401

    torch.set_num_threads(1)
    server.rehearse()
    seal.take()
    server.settle()


def main(channel: socket.socket, out: int, err: int) -> None:
    """The life of an answering process; returns when the grader hung up or a cell asked to exit."""
    link = Link(channel)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = link.receive()
    if first is None:
        return
    try:
        prepare(Settings(**first[1]), channel, out, err)
        from .shell import Shell

        shell = Shell.make(link.emit)
    except Exception as error:
        link.send(protocol.FAILED, {"text": f"{type(error).__name__}: {error}"})
        return
    link.send(protocol.READY, {"pid": os.getpid()})
    while (frame := link.receive()) is not None:
        kind, fields = frame
        if kind == protocol.CELL:
            done = shell.run(fields["number"], fields["source"])
            if os.getpid() != link.pid:
                os._exit(0)  # a copy that a cell forked and let run on
            link.send(protocol.DONE, {"request": fields["request"], "changed": changed(), **done})
            if shell.leaving:
                return
        elif kind == protocol.PROBE:
            link.send(protocol.ANSWER, {"request": fields["request"], **probe(fields, shell.user_ns)})


def changed() -> list[str]:
    """What the student's code has replaced here; that this cannot be told is worth telling too."""
    from . import seal

    try:
        return [str(name) for name in seal.changed()]
    except Exception:
        return ["what tells of replaced functions"]


def probe(fields: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    """Run a probe; an interrupt ends it with the report of where its ranks were."""
    from .probes import answer, failed

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        told = answer(fields["payload"], fields["options"], namespace)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return told
    except BaseException as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return failed(error)


def prepare(settings: Settings, channel: socket.socket, out: int, err: int) -> None:
    """Make this the process that `settings` describes, with its streams on `out` and `err`. Raises OSError."""
    os.environ.clear()
    os.environ.update(settings.environment)
    redirect(out, err)
    os.makedirs(settings.work, exist_ok=True)
    if settings.uid is not None:
        os.chown(settings.work, settings.uid, settings.uid)
    os.chdir(settings.work)
    if settings.submission is not None:
        left_out = copy_submission(settings.submission, settings.work, settings.uid)
        if settings.confined:
            let_go(settings.submission)
        for name in left_out:
            print(f"{name} is not a file or folder and was left out", file=sys.stderr)
    sys.path.insert(0, "")
    sys.argv = ["answers"]
    confine(settings)
    adopt_rank_server(channel)


def redirect(out: int, err: int) -> None:
    """Make `out` and `err` the standard streams, of C code and of programs started here too; stdin is empty."""
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((empty, 0), (out, 1), (err, 2)):
        if source != target:
            os.dup2(source, target)
            os.close(source)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = io.TextIOWrapper(os.fdopen(fd, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def adopt_rank_server(channel: socket.socket) -> None:
    """Fork the rank server from this process, while it is still ours alone, and use it for all launches."""
    from ..ranks import server

    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            server.prctl(server.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                ours.close()
                channel.close()
                _be_rank_server(theirs)
        finally:
            os._exit(0)
    theirs.close()
    client.adopt(ours, pid)


def _be_rank_server(control: socket.socket) -> None:
    from ..ranks import server

    empty = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(empty, fd)
    os.close(empty)
    os.setsid()
    os.environ["UTILS_RANK_SERVER"] = "1"
    server.prctl(server.PR_SET_CHILD_SUBREAPER, 1)
    mine = server.Server(control, rehearsing=False)  # who grades is short of time, not of a quick start
    try:
        mine.serve()
    except (BrokenPipeError, ConnectionError):
        pass
    finally:
        mine.close()
