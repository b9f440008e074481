"""The class around simulated students: its hub, which can be killed, the grading service's commands, the memory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from autograder.hub.api import Hub
from autograder.hub.settings import grader_environment
from benchmarks.hub_load.answers import LAB
from tests.hub.a_class import RunningClass, living, wait_for


class LoadClass(RunningClass):
    """A class of the named students in a folder of its own, with its hub; nothing of it is left after."""

    def __init__(self, students: Sequence[str]) -> None:
        super().__init__()
        path = self.root / "class.yaml"
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        spec["people"] = [{"name": name, "role": "student"} for name in students]
        spec["people"].append({"name": "grace", "role": "instructor"})
        spec["limits"] = {"servers": len(students) + 1}
        path.write_text(yaml.safe_dump(spec), encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()
        finally:
            for pid in living(self.root):  # for a hub that could not be stopped in order
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.root, ignore_errors=True)

    def release(self) -> None:
        """What formgrader's Release does."""
        self.as_grader("nbgrader", "release_assignment", LAB)

    def collect(self) -> None:
        """What formgrader's Collect does."""
        self.as_grader("nbgrader", "collect", LAB)

    def grade(self, limit_s: float) -> float:
        """Grade all that was collected; seconds."""
        start = time.monotonic()
        self.as_grader("autograder", "grade", LAB, "--submissions", "submitted", limit_s=limit_s)
        return time.monotonic() - start

    def as_grader(self, *words: str, limit_s: float = 300) -> str:
        """Run a module as the grading service's user; what it said. AssertionError with its last lines if it failed."""
        layout = self.layout
        process = subprocess.Popen(
            [sys.executable, "-m", *words], env=grader_environment(layout), cwd=layout.data, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            **layout.run_as(layout.grader_uid),
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        finally:
            if process.poll() is None:
                _end(process)
        assert process.returncode == 0, f"{' '.join(words)}: {' / '.join(said.splitlines()[-5:])}"
        return said

    def kill_hub(self) -> None:
        """Kill the hub without warning, and wait until nothing answers at its address."""
        os.kill(int((self.layout.hub / "hub.pid").read_text()), signal.SIGKILL)
        wait_for("nothing answers after the hub was killed", lambda: not self._answers(), 60)

    def wait_until_back(self) -> None:
        """Wait for the hub that was killed to answer again, through its proxy."""
        wait_for("the killed hub came back", lambda: self._answers() and Hub(self.layout).runs(), 180)

    def _answers(self) -> bool:
        with socket.socket() as sock:
            sock.settimeout(2)
            return sock.connect_ex(("127.0.0.1", self.layout.spec.address.public)) == 0

    def mib_of_server(self, name: str) -> float:
        """Memory of all processes of a student's server, pages that several share divided among them (PSS)."""
        wanted = (f"JUPYTERHUB_USER={name}\0", f":{self.layout.spec.address.hub}/hub/api")
        kib = 0
        for pid in living(*wanted):
            try:
                rolled = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:  # ended meanwhile
                continue
            kib += sum(int(line.split()[1]) for line in rolled.splitlines() if line.startswith("Pss:"))
        return kib / 1024


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and all that it started: ask, wait, force."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return
