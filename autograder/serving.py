"""A process that runs submissions one after the other for a process that cannot do so itself, such as a thread.

    python -m autograder.serving          one JSON object a line: a task in, what came of it out

Running needs a main thread, signals and streams of its own, which a worker of a cluster does not give. Torch is loaded
once. The process ends when the other side hangs up or is gone, and every sandbox ends with it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autograder import runs, worker
from autograder.scratch import scratch, sweep
from utils.selfcheck.notebook import Limits

REPO = Path(__file__).resolve().parent.parent


def plain_task(cells: list[dict[str, Any]], terms: worker.Terms, files: Path | None) -> dict[str, Any]:
    """A submission as plain data, with the bytes of the files that it was handed in with."""
    return {
        "environment": runs.environment(),
        "cells": cells,
        "terms": asdict(terms),
        "files": {str(p.relative_to(files)): _packed(p) for p in _beside(files)} if files else {},
    }


def _beside(files: Path) -> list[Path]:
    found = [p for p in sorted(files.rglob("*")) if p.is_file() and not p.is_symlink()]
    return [p for p in found if p.suffix != ".ipynb" and p.name != "timestamp.txt"]


def _packed(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def run_plain(task: dict[str, Any]) -> dict[str, Any]:
    """Run a task of `plain_task`: {"ran": ...}, or {"error": one sentence}."""
    if task["environment"] != runs.environment():
        return {"error": "this machine has another version of the course, Python, torch or IPython than the grader"}
    terms = worker.Terms(**task["terms"] | {"limits": Limits(**task["terms"]["limits"]),
                                            "hidden": tuple(task["terms"]["hidden"])})  # fmt: skip
    with scratch("handed-in") as folder:
        for name, content in task["files"].items():
            path = Path(folder) / name
            if not path.resolve().is_relative_to(Path(folder).resolve()):
                return {"error": f"the file name {name!r} leads out of the submission"}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        try:
            return {"ran": asdict(worker.run_cells(task["cells"], terms, Path(folder)))}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


class Server:
    """The asking end of a serving process, for one asker at a time; started at the first task.

    Example:
        Server().ask(json.dumps(plain_task(cells, Terms(), None)))      # '{"ran": {"outcomes": ...'
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None

    def ask(self, task: str) -> str:
        """What came of a task, both as JSON. Raises RuntimeError where the serving process ended."""
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "autograder.serving"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    text=True, cwd=REPO,
                )  # fmt: skip
            try:
                self.process.stdin.write(task + "\n")
                self.process.stdin.flush()
                reply = self.process.stdout.readline()
            except OSError:
                reply = ""
            if not reply:
                self.process.kill()
                self.process.wait()
                sweep("handed-in")
                raise RuntimeError("the process that runs submissions ended in the middle of one")
            return reply


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, in the middle of a task too."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing but replies goes there
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for line in sys.stdin:
        replies.write(json.dumps(run_plain(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
