"""The grader's end of the warm process: one for all sandboxes of this process, started when the first is."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

from .base import KEPT_VARIABLES, REPO, SandboxRefused
from .zygote import MOST_REQUEST, PATIENCE_S

START_S = 120.0


class Warm:
    """A running `zygote`; `start` may be called from any thread. `cold`: without torch, where nothing is forked."""

    def __init__(self, cold: bool = False) -> None:
        self.lock = threading.Lock()
        self.owner, self.cold = os.getpid(), cold
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-m", "autograder.sandbox.zygote", str(theirs.fileno())]
                + (["cold"] if cold else []),
                pass_fds=[theirs.fileno()], env=_environment(), cwd="/", stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
        finally:
            theirs.close()
        self.ready = False

    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def start(self, asked: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Start a sandbox; the reply has its pids, or `step` and `error`. Raises SandboxRefused."""
        with self.lock:
            self._wait_ready()
            self.control.settimeout(3 * PATIENCE_S)
            try:
                socket.send_fds(self.control, [json.dumps(asked).encode()], fds)
                return json.loads(self.control.recv(MOST_REQUEST))
            except (OSError, ValueError):
                raise SandboxRefused(
                    f"the warm process ended while it started a sandbox: {self._last_words()}"
                ) from None

    def _wait_ready(self) -> None:
        if self.ready:
            return
        self.control.settimeout(START_S)
        try:
            self.ready = bool(self.control.recv(16))
        except OSError:
            pass
        if not self.ready:
            raise SandboxRefused(f"the warm process did not start: {self._last_words()}")

    def _last_words(self) -> str:
        self.process.kill()
        said = self.process.communicate()[1].decode(errors="replace").strip().splitlines()
        return said[-1] if said else "it said nothing"

    def close(self) -> None:
        """End the process, and with it every sandbox that came from it."""
        self.control.close()
        if self.owner != os.getpid():
            return
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None and not self.process.stderr.closed:
            self.process.stderr.close()


class Branch(Warm):
    """A fork of a warm process that another process of the grader started; `mother` is a socket to that one."""

    def __init__(self, mother: socket.socket) -> None:
        self.lock, self.owner, self.cold, self.ready = threading.Lock(), os.getpid(), False, False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(mother, [json.dumps({"branch": True}).encode()], [theirs.fileno()])

    def alive(self) -> bool:
        if self.owner != os.getpid():
            return False
        try:
            self.control.settimeout(0)  # `start` sets its own
            return self.control.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _last_words(self) -> str:
        self.control.close()
        return "it said nothing"

    def close(self) -> None:
        """Have it end, and wait until it has."""
        if self.owner == os.getpid() and self.control.fileno() >= 0:
            try:
                self.control.settimeout(20)
                self.control.shutdown(socket.SHUT_WR)
                while self.control.recv(MOST_REQUEST):
                    pass
            except OSError:
                pass
        self.control.close()


def _environment() -> dict[str, str]:
    """What the warm process and, through /proc, student code may know of this environment: next to nothing."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {
        "PATH": os.defpath, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip


_warm: dict[bool, Warm] = {}
_lock = threading.Lock()


def warm_process(cold: bool = False) -> Warm:
    """This process's warm process, started if there is none; a forked copy of this process starts its own."""
    with _lock:
        made = _warm.get(cold)
        if made is None or not made.alive():
            if made is not None:
                made.close()
            made = _warm[cold] = Warm(cold)
        return made


def branch_off(mother: socket.socket) -> None:
    """Use a branch of another process's warm one as this process's own."""
    with _lock:
        if False not in _warm:
            _warm[False] = Branch(mother)


def shutdown() -> None:
    """End this process's warm processes, if there are any; the next sandbox starts another."""
    with _lock:
        for made in _warm.values():
            made.close()
        _warm.clear()


atexit.register(shutdown)
