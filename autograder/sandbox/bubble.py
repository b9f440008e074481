"""The sandbox of bubblewrap: namespaces of its own for files, processes, network, IPC, host name and users.

The answering process is forked from a warm one outside and joins the namespaces that bubblewrap made (20 ms); where the
kernel refuses that, bubblewrap starts it cold (seconds). Started by root, it becomes a user whom nothing belongs to.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from utils.answering.protocol import Settings

from . import mounts
from .base import HOME, REPO, Ended, Limits, Sandbox, SandboxRefused, Usage, environment, programs
from .channel import Channel
from .warm import warm_process
from .watch import NamespaceSampler, Watcher

FIRST_UID = 2_000_000_000  # users above are nobody's; one each while a sandbox lives
GONE_S = 20.0
MEMORY_FOLDERS = ("/tmp", "/dev/shm", HOME)


class Bubble(Sandbox):
    """See `Sandbox`. `cold`: have bubblewrap start the process itself, without the warm one."""

    kind = "bubblewrap"

    def __init__(self, folder: Path | None, limits: Limits, hidden: Iterable[str] = (), cold: bool = False) -> None:
        self.folder, self.limits, self.hidden, self.cold = folder, limits, tuple(hidden), cold
        self.root = os.getuid() == 0
        self.init = self.process = self.hold = self.status = -1  # descriptors
        self.init_pid = 0
        self.channel: Channel | None = None
        self.watcher: Watcher | None = None
        self.code: int | None = None
        self.loopback = 0

    # -- starting --------------------------------------------------------------------------------------------------
    def start(self) -> Channel:
        if self.init_pid:
            raise RuntimeError("a sandbox starts once; open another")
        ours, theirs = socket.socketpair()
        out, err, hold, status = (os.pipe() for _ in range(4))
        os.write(hold[1], b"\n")  # what the waiting program echoes
        self.hold, self.status = hold[1], status[0]
        self.channel = Channel(self, ours, out[0], err[0])
        try:
            pids = self._place([theirs.fileno(), out[1], err[1], hold[0], status[1]])
        finally:
            theirs.close()
            for pipe in (out[1], err[1], hold[0], status[1]):
                os.close(pipe)
        self._hold_on(pids)
        self.channel.set_up(self._settings(), self.limits.start_s)
        self.watcher.start()
        return self.channel

    def _place(self, fds: list[int]) -> dict[str, int]:
        """Have the warm process make the sandbox, joined or, where that is refused, started cold."""
        argv = mounts.command(self.folder, self.limits, self.hidden, self.root)
        for cold in (True,) if self.cold else (False, True):
            asked = {"argv": argv, "join": not cold, "user": not self.root, "program": []}
            asked["hidden"] = [str(REPO / path) for path in self.hidden]
            if cold:
                asked |= self._cold(argv)
            reply = warm_process(cold).start(asked, fds)
            if "error" not in reply:
                self.cold = cold
                return reply
            if reply["step"] == "hidden":
                raise SandboxRefused(f"this cannot be hidden: {reply['error']}")
            if reply["step"] != "join":
                raise SandboxRefused(f"bubblewrap could not make a sandbox: {reply['error']}")
        raise SandboxRefused(f"the sandbox could not be entered: {reply['error']}")

    def _cold(self, argv: list[str]) -> dict[str, list[str]]:
        """The command for a process that bubblewrap starts: as root it still has to change its user."""
        keep = ("SETUID", "SETGID", "SETPCAP", "CHOWN", "DAC_OVERRIDE") if self.root else ()
        extra = [word for name in keep for word in ("--cap-add", f"CAP_{name}")]
        for name, value in environment(HOME, self.limits, programs()).items():
            extra += ["--setenv", name, value]
        at = argv.index("--chdir")
        program = [sys.executable, "-P", "-s", "-m", "utils.answering", "--fds"]
        return {"argv": [*argv[:at], *extra, *argv[at:]], "program": program}

    def _settings(self) -> Settings:
        limits = self.limits
        return Settings(
            work=mounts.WORK, environment=environment(HOME, limits, programs()),
            submission=None if self.folder is None else mounts.SUBMISSION,
            uid=FIRST_UID + self.init_pid if self.root else None, address_bytes=limits.address_bytes,
            file_bytes=limits.file_bytes, open_files=limits.open_files, tasks=limits.tasks,
        )  # fmt: skip

    def _hold_on(self, pids: dict[str, int]) -> None:
        """Handles on the first process and on the answering one, and a watch on all of them."""
        self.init_pid = pids["init"]
        try:
            self.init = os.pidfd_open(pids["init"])
            self.process = os.pidfd_open(pids["pid"])
        except ProcessLookupError:
            raise Ended("the sandbox ended as soon as it was made") from None
        # its first process, and the program that waits
        sampler = NamespaceSampler(self.init_pid, MEMORY_FOLDERS, 1 if self.cold else 2)
        self.watcher = Watcher(self.limits, sampler, self._over)

    def _over(self, reason: str) -> None:
        self.ended_because = reason
        self.kill()

    # -- while it runs ---------------------------------------------------------------------------------------------
    def interrupt(self) -> None:
        _signal(self.process, signal.SIGINT)

    def kill(self) -> None:
        self.loopback = max(self.loopback, self._loopback() or 0)
        _signal(self.init, signal.SIGKILL)

    def exit_code(self, patience: float = 1.0) -> int | None:
        if self.code is None and self.status >= 0 and select.select([self.status], [], [], patience)[0]:
            told = os.read(self.status, 16)
            code = int(told) if told else 1
            # bubblewrap tells of a signal as shells do
            self.code = 128 - code if self.cold and code > 128 else code
        return self.code

    def usage(self) -> Usage:
        peak = self.watcher.peak if self.watcher is not None else None
        self.loopback = max(self.loopback, self._loopback() or 0)
        return Usage(peak.memory_bytes if peak else 0, peak.processes if peak else 0, self.loopback)

    def _loopback(self) -> int | None:
        """Bytes sent over the sandbox's own network so far, by the kernel's count."""
        try:
            with open(f"/proc/{self.init_pid}/net/dev") as file:
                rows = [line.split(":")[1].split() for line in file if line.strip().startswith("lo:")]
        except OSError:
            return None
        return int(rows[0][8]) if rows else None

    # -- ending ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        if self.channel is not None and self.channel.sock.fileno() >= 0:
            self.channel.close()
        if self.init >= 0:
            self.kill()
        if self.hold >= 0:
            os.close(self.hold)
            self.hold = -1
        left = self.init >= 0 and not select.select([self.init], [], [], GONE_S)[0]
        if self.watcher is not None:
            self.watcher.stop()
        self.exit_code(0)
        for name in ("init", "process", "status"):
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)
        if left:  # the first process ends after all others of its namespace
            raise RuntimeError(f"a sandbox (process {self.init_pid}) could not be ended within {GONE_S:.0f} s")

    def describe(self) -> str:
        who = "as a user of its own" if self.root else "as this user, seen as another"
        return f"bubblewrap: files, processes, network and users of its own, no privileges, {who}" + (
            ", started cold" if self.cold else ""
        )


def _signal(pidfd: int, number: int) -> None:
    if pidfd >= 0:
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            pass
