"""Watching a sandbox from outside: memory and processes of all that runs in it, whoever started it.

The processes are read from the sandbox's own /proc, which lists all of its pid namespace. Forked processes share most
of their pages, so a plain sum of what is resident counts them many times over: only when that sum grows is the exact
share of each process asked for (`smaps_rollup`, which costs a millisecond or two a process). Files in memory count too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from .base import Limits, gib

PERIOD_S = 0.1
REST = 5  # times what the last exact look took, before the next one that growth does not call for


@dataclass
class Sample:
    """What is in use at one moment."""

    memory_bytes: int
    processes: int


class Watcher:
    """Takes samples in the background and calls `over(reason)` once, when one is past a limit.

    `sample(last)` returns the current Sample, given the memory of the last one; None when there is nothing to see.
    """

    def __init__(self, limits: Limits, sample: Callable[[int], Sample | None], over: Callable[[str], None]) -> None:
        self.limits, self.sample, self.over = limits, sample, over
        self.peak = Sample(0, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sandbox watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            now = self.sample(self.limits.memory_bytes)
            if now is None:
                return
            self.peak.memory_bytes = max(self.peak.memory_bytes, now.memory_bytes)
            self.peak.processes = max(self.peak.processes, now.processes)
            reason = self.reason(now)
            if reason:
                self.over(reason)
                return

    def reason(self, now: Sample) -> str:
        """Which limit a sample passes, in words; "" for none."""
        if now.memory_bytes > self.limits.memory_bytes:
            return f"it used more than {gib(self.limits.memory_bytes)} of memory"
        if now.processes > self.limits.processes:
            return f"it started more than {self.limits.processes} processes"
        return ""


class NamespaceSampler:
    """Samples of the pid namespace whose first process is `init`, with the memory files of `folders` in it."""

    def __init__(self, init: int, folders: tuple[str, ...], apart: int) -> None:
        self.root = Path(f"/proc/{init}/root")
        self.proc, self.folders = self.root / "proc", [self.root / f.lstrip("/") for f in folders]
        self.apart = apart  # processes that are the sandbox's own
        self.rough_before = self.exact_before = 0
        self.rest_until = 0.0

    def __call__(self, limit: int) -> Sample | None:
        try:
            pids = [name for name in os.listdir(self.proc) if name.isdigit()]
        except OSError:
            return None
        return Sample(self.memory(pids, limit), max(0, len(pids) - self.apart))

    def memory(self, pids: list[str], limit: int) -> int:
        """Bytes in use: exact where the rough sum has grown by an eighth, or is past the limit; else the last exact."""
        held = sum(_held(folder) for folder in self.folders) + _nameless([self.proc / pid / "fd" for pid in pids])
        rough = _total([self.proc / pid / "status" for pid in pids], "RssAnon:", "RssShmem:", held)
        grown = rough > self.rough_before + self.rough_before // 8
        if grown or (rough > limit and time.monotonic() > self.rest_until):
            started = time.monotonic()
            self.rough_before = rough
            files = [self.proc / pid / "smaps_rollup" for pid in pids]
            self.exact_before = _total(files, "Pss_Anon:", "Pss_Shmem:", held)
            self.rest_until = time.monotonic() + REST * (time.monotonic() - started)
        return self.exact_before


def _held(folder: Path) -> int:
    """Bytes of the files of a memory file system."""
    try:
        stat = os.statvfs(folder)
    except OSError:
        return 0
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def _nameless(folders: list[Path]) -> int:
    """Bytes of the files without a name that processes have open (memfd), each counted once."""
    found: dict[tuple[int, int], int] = {}
    for folder in folders:
        try:
            for entry in os.scandir(folder):
                stat = entry.stat()
                if stat.st_nlink == 0 and S_ISREG(stat.st_mode):
                    found[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
        except OSError:
            continue  # it has just ended
    return sum(found.values())


def _total(files: list[Path], anonymous: str, shared: str, held: int) -> int:
    """Private memory, and of shared memory the larger of what is mapped and of what files hold: they overlap."""
    anon = shmem = 0
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue  # it has just ended
        for line in lines:
            if line.startswith(anonymous):
                anon += int(line.split()[1]) * 1024
            elif line.startswith(shared):
                shmem += int(line.split()[1]) * 1024
    return anon + max(shmem, held)
