"""Finding what a process tree left behind: processes by a mark in their environment, files in folders of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


class Kernel:
    """A stand-in for a kernel: a Python process that runs `code`, with a mark that all its descendants inherit."""

    def __init__(self, folder: Path, code: str) -> None:
        self.mark, self.folder = uuid.uuid4().hex, folder
        self.shm_before = set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()
        script = folder.parent / f"{self.mark}.py"
        script.write_text(
            "import os, sys, time, signal, torch, torch.distributed as dist\nfrom utils import *\n" + code
        )
        env = {**os.environ, "LEFTOVER_MARK": self.mark, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, word: str, seconds: float = 60) -> None:
        """Read its output until a line starts with `word`."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith(word):
                return
        raise AssertionError(f"ended before it said {word!r}: {''.join(lines)}")

    def finish(self, seconds: float = 60) -> str:
        """Wait for it to end; returns the rest of what it printed."""
        return self.process.communicate(timeout=seconds)[0]

    def processes(self) -> list[psutil.Process]:
        """Every living process that carries the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get("LEFTOVER_MARK") == self.mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def ranks(self) -> list[psutil.Process]:
        """The forked ranks of its server, standing by or running, and what they started."""
        return [p for p in self.processes() if p.pid != self.process.pid and not _is_server(p)]

    def standing_by(self, count: int = 4, seconds: float = 60) -> list[psutil.Process]:
        """The ranks once there are `count` and nothing else for two looks in a row; else what there is after `seconds`.

        One look is not enough: while a launch is being buried, what it started may happen to be `count` processes too.
        """
        until, before = time.monotonic() + seconds, None
        while True:
            ranks = self.ranks()
            if (len(ranks) == count and ranks == before) or time.monotonic() > until:
                return ranks
            before = ranks
            time.sleep(0.1)

    def assert_nothing_left(self, seconds: float = 60) -> None:
        """No process, no file in its temporary folder, no shared memory, within `seconds`."""
        until = time.monotonic() + seconds
        while (left := self.leftovers()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, left

    def leftovers(self) -> list[str]:
        files = [str(p) for p in self.folder.rglob("*")]
        shm = set(os.listdir("/dev/shm")) - self.shm_before if Path("/dev/shm").exists() else set()
        return [str(p) for p in self.processes()] + files + sorted(f"/dev/shm/{name}" for name in shm)


def _is_server(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return parent is not None and "utils.ranks.server" not in " ".join(parent.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


@contextmanager
def kernel(folder: Path, code: str) -> Iterator[Kernel]:
    """A kernel that is killed, with all it started, when the test is over, whatever happened."""
    made = Kernel(folder, code)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
        if made.process.stdout is not None:
            made.process.stdout.close()
        for process in made.processes():
            process.kill()
