"""No sandbox: the same processes on the bare machine, for the course's own samples and for those who ask for it.

A keeper process ends everything that the answers started, also when the grader is killed. Nothing else is held back:
student code runs as the user who grades, and can read and write what that user can.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

import utils.selfcheck.keeper as keeper
from utils.answering.protocol import Settings
from utils.selfcheck.session import MARKER, end_marked

from .base import REPO, Limits, Sandbox, Usage, environment, programs
from .channel import Channel
from .connecting import Meeting
from .watch import Sample, Watcher


class Bare(Sandbox):
    """See `Sandbox`; isolates nothing."""

    kind = "none"

    def __init__(self, folder: Path | None, limits: Limits) -> None:
        self.source, self.limits, self.marker = folder, limits, uuid.uuid4().hex
        self.keeper: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None
        self.watcher: Watcher | None = None
        self.pid, self.code = 0, None
        self.told = b""

    def start(self) -> Channel:
        self.home = Path(tempfile.mkdtemp(prefix="answers-"))
        meeting = Meeting()
        program = [sys.executable, "-P", "-s", "-m", "utils.answering", "--connect", str(meeting.path)]
        env = environment(str(self.home), self.limits, programs()) | {"TMPDIR": str(self.home), MARKER: self.marker}
        self.keeper = subprocess.Popen(
            [sys.executable, "-P", keeper.__file__, str(self.home), *program],
            env=env | {"PYTHONPATH": str(REPO)}, cwd=self.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self.channel = Channel(self, *meeting.accept(self.limits.start_s, self._gone))
        self.watcher = Watcher(self.limits, self._sample, self._over)
        self.channel.set_up(self._settings(env), self.limits.start_s)
        self.watcher.start()
        return self.channel

    def _gone(self) -> str:
        return "" if self.exit_code(0) is None else f"it ended with exit code {self.code}"

    def _settings(self, env: dict[str, str]) -> Settings:
        return Settings(
            work=str(self.home / "work"), environment=env, submission=str(self.source) if self.source else None,
            confined=False, address_bytes=self.limits.address_bytes, file_bytes=self.limits.file_bytes,
            open_files=self.limits.open_files,
        )  # fmt: skip

    def _listen(self, patience: float) -> None:
        """Hear what the keeper says: `pid N`, then `exit CODE`."""
        if self.keeper is None or not select.select([self.keeper.stdout], [], [], patience)[0]:
            return
        data = os.read(self.keeper.stdout.fileno(), 4096)
        if not data and self.code is None:
            self.code = -signal.SIGKILL  # the keeper is gone, and what it kept with it
        self.told += data
        for line in self.told.decode().splitlines():
            word, _, value = line.partition(" ")
            if word == "pid" and value:
                self.pid = int(value)
            elif word == "exit" and value:
                self.code = int(value)

    def interrupt(self) -> None:
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        self._listen(0)
        if self.pid and self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def exit_code(self, patience: float = 1.0) -> int | None:
        until = time.monotonic() + patience
        while self.code is None:
            self._listen(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                break
        return self.code

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.keeper.pid).children(recursive=True) if self.keeper else []
        except psutil.Error:
            return []

    def _sample(self, limit: int) -> Sample | None:
        family, memory = self._family(), 0
        for process in family:
            with contextlib.suppress(psutil.Error):
                memory += process.memory_full_info().uss
        return Sample(memory, len(family)) if family else None

    def _over(self, reason: str) -> None:
        self.ended_because = reason
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def usage(self) -> Usage:
        peak = self.watcher.peak if self.watcher else Sample(0, 0)
        return Usage(peak.memory_bytes, peak.processes, None)

    def close(self) -> None:
        if self.channel is not None and self.channel.sock.fileno() >= 0:
            self.channel.close()
        if self.watcher is not None:
            self.watcher.stop()
        if self.keeper is not None:
            self.exit_code(0)
            self.keeper.stdin.close()
            try:
                self.keeper.wait(20)
            except subprocess.TimeoutExpired:
                self.keeper.kill()
                self.keeper.wait()
            self.keeper.stdout.close()
            self.keeper = None
            end_marked(self.marker)
            shutil.rmtree(self.home, ignore_errors=True)

    def describe(self) -> str:
        return "not isolated"
