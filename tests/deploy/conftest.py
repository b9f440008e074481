"""A stand-in cluster for the tests of pods."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autograder.course import REPO
from autograder.sandbox import pod


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """`cluster(absent=..., ...)`: a stand-in cluster that does these things; the folder of its state."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    program = folder / "kubectl"
    stand_in = Path(__file__).with_name("standin_kubectl.py")
    program.write_text(
        f'#!/bin/sh\nexport STANDIN={folder} PYTHONPATH={REPO}\nexec {sys.executable} -P {stand_in} "$@"\n'
    )
    program.chmod(0o755)
    for name, value in (("IMAGE", "image.example/course:1"), ("KUBECTL", str(program)), ("WAIT_S", "60")):
        monkeypatch.setenv(f"COURSE_POD_{name}", value)
    pod.ready.cache_clear()

    def does(**what: Any) -> Path:
        (folder / "does.json").write_text(json.dumps(what))
        return folder

    yield does
    pod.ready.cache_clear()
    left = inits(folder)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a pod was left running"
    assert not list(folder.glob("*.pod")) and not list(folder.glob("*.job"))


def inits(folder: Path) -> list[int]:
    """First processes of pods that still run."""
    found = [int(path.read_text()) for path in folder.glob("*.init")]
    return [pid for pid in found if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
