"""A grader that is killed again and again: what it leaves can be gone on from, and comes to the same marks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbgrader.api import Gradebook

from autograder.course import REPO, Course
from autograder.grade import grade
from autograder.results import load_all

TOY = "lab90_toy"
SEED = 3
WRONG = {"answer_steps": "def answer_steps(p):\n    return 5"}
BLANK = {"pass_on": "def pass_on(x):\n    return x"}
GRADER = """
import sys
from pathlib import Path
from autograder.course import Course
from autograder.grade import grade
solutions, releases, data, lab, place = sys.argv[1:]
grade(Course(Path(solutions), Path(releases), Path(data)), lab, Path(place), jobs=2)
"""


def hand_in(place: Path, answered: Callable[..., Any]) -> None:
    place.mkdir()
    for student, cells in {"Ada": {}, "Bo": WRONG, "Cy": BLANK}.items():
        nbformat.write(answered(**cells), place / f"{student}.ipynb")
    (place / "Torn.ipynb").write_text('{"cells": [', encoding="utf-8")


def marks(course: Course) -> dict[str, Any]:
    """All that a class's graders leave: the gradebook's rows, the results, the pages."""
    with Gradebook(course.gradebook_url) as gradebook:
        submissions = gradebook.assignment_submissions(TOY)
        rows = sorted((s.student_id, sorted((g.name, g.auto_score) for b in s.notebooks for g in b.grades))
                      for s in submissions)  # fmt: skip
    results = [result.as_record() for result in load_all(course.data, TOY)]
    pages = sorted(path.parent.parent.name for path in course.data.glob(f"feedback/*/{TOY}/{TOY}.html"))
    return {"gradebook": rows, "results": results, "pages": pages}


def start(course: Course, place: Path) -> subprocess.Popen[bytes]:
    arguments = [str(course.solutions), str(course.releases), str(course.data), TOY, str(place)]
    course.data.with_suffix(".tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", GRADER, *arguments], cwd=REPO, start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(course.data.with_suffix(".tmp"))},
    )  # fmt: skip


def kill(grader: subprocess.Popen[bytes]) -> bool:
    """Kill the grader's whole group at once, and see that all it started ends too; False where it had ended."""
    if grader.poll() is not None:
        return False
    started = [psutil.Process(grader.pid), *psutil.Process(grader.pid).children(recursive=True)]
    os.killpg(grader.pid, signal.SIGKILL)
    grader.communicate()
    left = psutil.wait_procs(started, timeout=60)[1]
    assert not [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    return True


def left_in_shared_memory() -> set[str]:
    """Names in /dev/shm that no process has in use."""
    used: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = [line for line in maps.read_text().splitlines() if "/dev/shm/" in line]
            used |= {line.split("/dev/shm/")[1].split()[0] for line in lines}
        except OSError:
            continue  # it has just ended
    return {name for name in os.listdir("/dev/shm") if name not in used} if os.path.isdir("/dev/shm") else set()


def kill_and_resume(course: Course, root: Path, kills: int, answered: Callable[..., Any]) -> None:
    place, rng = root / "class", random.Random(SEED)
    hand_in(place, answered)
    quiet = Course(course.solutions, course.releases, root / "quiet")
    began = time.monotonic()
    assert start(quiet, place).wait(240) == 0
    whole = time.monotonic() - began
    wanted = marks(quiet)
    assert len(wanted["gradebook"]) == 3 and len(wanted["results"]) == 4

    done = round_ = 0
    shared = left_in_shared_memory()
    while done < kills:
        data, round_ = Course(course.solutions, course.releases, root / f"round{round_}"), round_ + 1
        while done < kills:
            grader = start(data, place)
            try:
                grader.wait(rng.uniform(0.02, 1.1) * whole)
                assert grader.returncode == 0, grader.stderr.read().decode()[-800:]
                break  # it came through: another class
            except subprocess.TimeoutExpired:
                done += kill(grader)
        last = start(data, place)
        assert last.wait(240) == 0, last.stderr.read().decode()[-800:]
        assert marks(data) == wanted
        assert not [path for path in data.data.rglob("*") if ".part" in path.name or "intake-" in path.name]
        assert os.listdir(data.data.with_suffix(".tmp")) == [] and left_in_shared_memory() <= shared
        versions = sorted(path.name for path in (data.data / "versions" / TOY).iterdir())
        assert versions == ["0001.json"]
        json.loads((data.data / "versions" / TOY / "0001.json").read_text(encoding="utf-8"))


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_grader_that_is_killed_goes_on_where_it_was(
    toy_course: Course, answered: Callable[..., Any], tmp_path: Path
) -> None:
    kill_and_resume(toy_course, tmp_path, 5, answered)


@pytest.mark.all
@pytest.mark.timeout(1800)
def test_a_grader_that_is_killed_at_many_points(
    toy_course: Course, answered: Callable[..., Any], tmp_path: Path
) -> None:
    kill_and_resume(toy_course, tmp_path, 24, answered)


def content(course: Course) -> dict[str, tuple[int, bytes]]:
    files = [path for path in course.data.rglob("*") if path.is_file() and path.name != "gradebook.db"]
    kept = [path for path in files if path.parent.name != TOY or path.name != "release.json"]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in kept}


@pytest.mark.heavy
def test_a_repeated_run_grades_nobody_anew_and_each_change_counts(
    toy_course: Course, answered: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course, place = Course(toy_course.solutions, toy_course.releases, tmp_path / "data"), tmp_path / "class"
    hand_in(place, answered)
    first = grade(course, TOY, place, jobs=2)
    before, known = content(course), marks(course)
    graded: list[str] = []
    inner = grade.__globals__["grade_one"]

    def told(private: Course, lab: str, submission: Any) -> Any:
        graded.append(submission.student)
        return inner(private, lab, submission)

    monkeypatch.setitem(grade.__globals__, "grade_one", told)
    again = grade(course, TOY, place)
    assert (graded, again, marks(course)) == ([], first, known)
    assert content(course) == before

    nbformat.write(answered(**BLANK), place / "Bo.ipynb")
    page = next(result.feedback for result in first if result.student == "Cy")
    page.unlink()
    with Gradebook(course.gradebook_url) as gradebook:
        gradebook.find_grade("pass_on_two", TOY, TOY, "Ada").manual_score = 1.0
        gradebook.db.commit()
    results = {result.student: result for result in grade(course, TOY, place, jobs=2)}
    assert sorted(graded) == ["Ada", "Bo", "Cy"]
    assert page.is_file()
    assert results["Ada"].score == 16
    assert results["Bo"].score == results["Cy"].score
    graded.clear()
    grade(course, TOY, place)
    assert graded == []
