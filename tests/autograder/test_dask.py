"""Grading on a Dask cluster: a real scheduler and workers as processes, one killed in the middle of a submission."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from autograder import runs, serving, worker
from autograder.cluster import _keep, run_on_cluster
from autograder.course import REPO, Course, UserError
from autograder.grade import grade
from autograder.pool import Task

TOY = "lab90_toy"
FIVE = "def answer_steps(p):\n    return 5"
HELPED = "from my_steps import answer_steps"


def wait_for(what: Callable[[], Any], seconds: float = 90) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and its two workers."""
    note = tmp_path / "scheduler.json"
    here = {**os.environ, "DASK_TEMPORARY_DIRECTORY": str(tmp_path / "dask")}  # killed, they cannot tidy up
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": REPO, "env": here}
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(note)]
    processes = [subprocess.Popen([*dask, *common], **quiet)]
    try:
        address = wait_for(lambda: note.is_file() and note.read_text() and json.loads(note.read_text()))["address"]
        options = ["--nthreads", "1", "--no-nanny", *common]
        start = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
        workers = [subprocess.Popen(start, **quiet) for _ in range(2)]
        processes += workers
        yield address, workers
    finally:
        started = [child for p in processes if p.poll() is None for child in psutil.Process(p.pid).children(True)]
        for process in reversed(processes):
            process.kill()
            process.wait()
        assert not psutil.wait_procs(started, timeout=30)[1]


def kill_in_a_task(workers: list[subprocess.Popen[bytes]], killed: list[Any]) -> None:
    """Kill the first worker that has a sandbox open, and note all that it had started."""
    while not killed:
        for process in workers:
            below = psutil.Process(process.pid).children(recursive=True)
            if any("bwrap" in child.name() for child in below if child.is_running()):
                process.send_signal(signal.SIGKILL)
                killed.extend(below)
                return
        time.sleep(0.01)


@pytest.mark.heavy
def test_a_worker_is_killed_and_nothing_is_lost(
    toy_course: Course, answered: Callable[..., Any], cluster: Any, tmp_path: Path
) -> None:
    address, workers = cluster
    place = tmp_path / "class"
    place.mkdir()
    for i in range(4):
        nbformat.write(answered(**({"answer_steps": FIVE} if i % 2 else {})), place / f"s{i}.ipynb")
    (place / "helped").mkdir()
    nbformat.write(answered(answer_steps=HELPED), place / "helped" / f"{TOY}.ipynb")
    (place / "helped" / "my_steps.py").write_text("def answer_steps(p):\n    return 2 * (p - 1)\n", encoding="utf-8")
    for i in range(4):
        (place / f"s{i}").mkdir()
        (place / f"s{i}.ipynb").rename(place / f"s{i}" / f"{TOY}.ipynb")
    course = Course(toy_course.solutions, toy_course.releases, tmp_path / "data")
    private = Course(course.solutions, course.data / "release", course.data)

    here: list[Any] = []
    inner, worker.run_cells = worker.run_cells, lambda *given: here.append(given)  # the grader itself runs nothing
    killed: list[psutil.Process] = []
    killer = threading.Thread(target=kill_in_a_task, args=(workers, killed), daemon=True)
    killer.start()
    try:
        results = grade(course, TOY, place, runner=partial(run_on_cluster, private, address=address))
    finally:
        worker.run_cells = inner
    killer.join(5)
    assert killed and not psutil.wait_procs(killed, timeout=30)[1]
    assert {result.student: result.score for result in results} == {
        "helped": 20, "s0": 20, "s1": 14, "s2": 20, "s3": 14,
    }  # fmt: skip
    assert not here
    assert [result.status for result in results] == ["graded"] * 5


def test_no_scheduler_is_said(
    toy_course: Course, answered: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autograder.cluster.WAIT_S", 0.5)
    nbformat.write(answered(), tmp_path / "Ada.ipynb")
    course = Course(toy_course.solutions, toy_course.releases, tmp_path / "data")
    private = Course(course.solutions, course.data / "release", course.data)
    with pytest.raises(UserError, match="No Dask scheduler answers at tcp"):
        grade(course, TOY, tmp_path, runner=partial(run_on_cluster, private, address="tcp://127.0.0.1:9"))


CELL = {"cell_type": "code", "source": "x = 1", "metadata": {}}
OUTCOME = {"index": 0, "number": 1, "name": "a", "kind": "plain", "status": "passed"}


@pytest.mark.parametrize(
    "reply",
    [
        b"pickled", None, "[1, 2]", '{"ran": 1}', '{"error": "no sandbox"}', "not JSON",
        json.dumps({"ran": {"outcomes": [OUTCOME | {"points": "5"}], "flags": [], "isolation": ""}}),
        json.dumps({"ran": {"outcomes": [OUTCOME | {"more": 1}], "flags": [], "isolation": ""}}),
        json.dumps({"ran": {"outcomes": [OUTCOME | {"outputs": ["x"]}], "flags": [], "isolation": ""}}),
        json.dumps({"ran": {"outcomes": [], "flags": [3], "isolation": ""}}),
    ],
)  # fmt: skip
def test_what_is_no_run_is_not_kept(toy_course: Course, tmp_path: Path, reply: Any) -> None:
    course = Course(toy_course.solutions, toy_course.releases, tmp_path)
    with pytest.raises(ValueError):
        _keep(course, Task("Ada", [CELL]), worker.Terms(), reply)
    assert not (tmp_path / "runs").exists()
    good = json.dumps({"ran": {"outcomes": [OUTCOME], "flags": [], "isolation": "x"}})
    _keep(course, Task("Ada", [CELL]), worker.Terms(), good)
    assert worker.is_kept(tmp_path, [CELL], worker.Terms(), None)


def test_a_machine_of_another_version_and_names_that_lead_out_are_refused(tmp_path: Path) -> None:
    task = serving.plain_task([CELL], worker.Terms(), None)
    assert "another version" in serving.run_plain(task | {"environment": "x"})["error"]
    assert "leads out" in serving.run_plain(task | {"files": {"../../x": "AA=="}})["error"]
    assert task["environment"] == runs.environment()
