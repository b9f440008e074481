"""The kernel's end of the fork server: starting it, taking ranks, ending them.

One server serves all launches of a process. It starts in the background when `utils` is imported in a notebook, or at
the first launch elsewhere; a forked copy of the kernel starts its own.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..trace.journal import Reader
from . import server as protocol
from .errors import BadLaunch

START_LIMIT = 120.0


@dataclass
class Rank:
    """A running rank as the kernel holds it."""

    pid: int
    sock: socket.socket
    out: int
    err: int
    stacks: int
    journal: Reader
    exit_code: int | None = None
    fds: list[int] = field(default_factory=list)

    def close(self) -> None:
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.journal.close()


class Client:
    """A fork server and the socket to it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        ours, theirs = socket.socketpair()
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        env["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
        env["OBJC_DISABLE_INITIALIZE_FORK_SAFETY"] = "YES"  # macOS: torch's frameworks are idle in the server
        env["PYTHONPATH"] = os.pathsep.join(p for p in [str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")] if p)
        env["UTILS_RANK_SERVER"] = "1"
        env.pop("PYTHONSTARTUP", None)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "utils.ranks.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise BadLaunch(f"the rank server could not be started: {error}") from None
        finally:
            theirs.close()
        self.control = ours
        self.ready = False

    # -- messages --------------------------------------------------------------------------------------------------
    def receive(self, fds: int = 0) -> tuple[bytes, int, int, list[int]]:
        """The next message of the server; raises ConnectionError when it is gone."""
        data, got, _, _ = socket.recv_fds(self.control, protocol.MESSAGE.size, fds)
        while data and len(data) < protocol.MESSAGE.size:
            more = self.control.recv(protocol.MESSAGE.size - len(data))
            data = data + more if more else b""
        if not data:
            raise ConnectionError("the rank server ended")
        verb, a, b = protocol.MESSAGE.unpack(data)
        return verb.rstrip(b"\0"), a, b, list(got)

    def wait_ready(self) -> None:
        """Wait until the server has torch loaded; says in one sentence why it could not."""
        if self.ready:
            return
        self.control.settimeout(START_LIMIT)
        try:
            self.receive()
        except (ConnectionError, TimeoutError):
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace").strip().splitlines()
            raise BadLaunch(
                f"the rank server did not start: {said[-1] if said else 'it ended without a word'}"
            ) from None
        finally:
            self.control.settimeout(None)
        self.ready = True

    def take(self, count: int) -> list[Rank]:
        """`count` fresh ranks."""
        self.wait_ready()
        self.control.sendall(protocol.message(protocol.TAKE, count))
        ranks: list[Rank] = []
        while len(ranks) < count:
            verb, pid, _, fds = self.receive(8)
            if verb == protocol.RANK:  # anything else is of an earlier launch
                sock, out, err, stacks, book = fds
                ranks.append(
                    Rank(
                        pid,
                        socket.socket(fileno=sock),
                        out,
                        err,
                        stacks,
                        Reader(book),
                        fds=[out, err, stacks, book],
                    )
                )
        return ranks

    def ask_stack(self, rank: Rank) -> None:
        """Have a rank write the Python stacks of its threads to its `stacks` pipe, even when it is stuck in C."""
        self.control.sendall(protocol.message(protocol.STACK, rank.pid))

    def end(self, ranks: list[Rank], patient: bool) -> None:
        """End the launch: every rank and what it started is killed; `patient`: and reaped, with its exit code known."""
        self.control.sendall(protocol.message(protocol.END, int(patient)))
        while True:
            verb, pid, code, _ = self.receive()
            if verb == protocol.ENDED:
                break
            for rank in ranks:
                if verb == protocol.EXIT and rank.pid == pid:
                    rank.exit_code = code

    def alive(self) -> bool:
        """Whether the server can be asked; one that is being killed hangs up before it can be reaped."""
        if self.pid != os.getpid() or self.process.poll() is not None:
            return False
        try:
            return self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Stop the server and all its ranks."""
        self.control.close()
        if self.pid != os.getpid():
            return
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


class _Forked:
    """The process of a rank server that this process forked itself: what `Client` needs of a `Popen`."""

    stderr = None

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("rank server", timeout)
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> tuple[bytes, bytes]:
        self.wait()
        return b"", b""


def adopt(control: socket.socket, pid: int) -> None:
    """Use a rank server that this process forked, `control` being the socket to it, for all launches from now on."""
    global _client
    made = Client.__new__(Client)
    made.pid, made.lock = os.getpid(), threading.Lock()
    made.process, made.control, made.ready = _Forked(pid), control, False
    with _client_lock:
        _client = made


_client: Client | None = None
_client_lock = threading.Lock()


def client() -> Client:
    """This process's fork server, started if there is none."""
    global _client
    with _client_lock:
        if _client is None or not _client.alive():
            if _client is not None:
                _client.close()
            _client = Client()
        return _client


def shutdown() -> None:
    """Stop this process's fork server, if it has one; the next launch starts another."""
    global _client
    with _client_lock:
        if _client is not None and _client.pid == os.getpid():
            _client.close()
        _client = None


atexit.register(shutdown)
