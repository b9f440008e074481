"""How long a class takes to grade, by plain nbgrader and by this project: prints one JSON object.

    python benchmarks/grade.py [--submissions 24] [--jobs N]

The same submissions of lab 01 go through `nbgrader autograde` with its own preprocessors (one kernel after the other,
no sandbox, no feedback) and through `autograder grade` (sandbox, feedback), each with a gradebook of its own.
`where` has seconds by stage: of the grader's own process, and those that its workers spent in cells.
Takes about five minutes on two idle cores, nearly all of it nbgrader's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nbgrader.api import Gradebook

from autograder import ahead, grade, runs
from autograder.course import REPO, Course, put_programs_on_path
from autograder.pool import jobs_here
from autograder.release import release
from autograder.sample import SAMPLE_CLASS, write_class

LAB = "lab01_allreduce"
STAGES = {
    "release": (grade, "release"),
    "intake": (grade, "collect"),
    "finding_what_runs": (ahead, "_task"),
    "nbgrader_scores": (grade, "run_converter"),
    "reading_marks": (grade, "read_result"),
    "feedback": (grade, "write_feedback"),
}
CONFIG = """
c = get_config()
c.CourseDirectory.root = {root!r}
c.CourseDirectory.source_directory = {source!r}
c.CourseDirectory.release_directory = {release!r}
c.CourseDirectory.db_url = {url!r}
c.Execute.timeout = 60
"""


def choose(course: Course, folder: Path, count: int) -> list[str]:
    """Write `count` submissions, spread over the lab's answer files and the sample class; the students."""
    answers = sorted([*SAMPLE_CLASS.glob("*.py"), *(REPO / "tests" / "answers" / "lab01").glob("*.py")])
    picked = [answers[i * len(answers) // count] for i in range(count)]
    with tempfile.TemporaryDirectory(prefix="answers-") as made:
        for i, path in enumerate(picked):
            cells = path.read_text(encoding="utf-8").partition("# %%")
            (Path(made) / f"{i:02d}.py").write_text(_header(cells[0], i) + cells[1] + cells[2], encoding="utf-8")
        return [sample.student for sample in write_class(course, LAB, Path(made), folder)]


def _header(text: str, number: int) -> str:
    """An answer file's header as a sample of the student with this number."""
    blank = [line for line in text.splitlines() if line.startswith("# base:")]
    return "\n".join([f"# student: s{number:02d}", *blank, "", ""])


def by_nbgrader(course: Course, folder: Path) -> float:
    """Seconds of `nbgrader autograde` over `folder`, with nbgrader's settings but for the places of files."""
    (course.data / "submitted").symlink_to(folder)
    settings = CONFIG.format(root=str(course.data), source=str(course.solutions), release=str(course.releases),
                             url=course.gradebook_url)  # fmt: skip
    (course.data / "nbgrader_config.py").write_text(settings, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "nbgrader", "autograde", LAB, "--force"]
    started = time.monotonic()
    done = subprocess.run(command, cwd=course.data, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-3:]), file=sys.stderr)
    return seconds


@contextlib.contextmanager
def timed(where: dict[str, float]) -> Iterator[None]:
    """While this holds, the stages of grading add their seconds to `where`."""

    def slow(name: str, inner: Any) -> Any:
        def outer(*args: Any, **options: Any) -> Any:
            started = time.monotonic()
            try:
                return inner(*args, **options)
            finally:
                where[name] = where.get(name, 0.0) + time.monotonic() - started

        return outer

    with contextlib.ExitStack() as stack:
        for name, (module, function) in STAGES.items():
            stack.enter_context(patch.object(module, function, slow(name, getattr(module, function))))
        yield


def in_cells(data: Path) -> float:
    """Seconds that all kept runs spent in cells."""
    kept = [runs.load(data, path.stem) for path in (data / "runs").glob("*.json")]
    return sum(outcome.seconds for ran in kept if ran for outcome in ran.outcomes)


def scores(course: Course) -> dict[str, dict[str, float]]:
    """Points by student and test, for all whom nbgrader got through with."""
    with Gradebook(course.gradebook_url) as gradebook:
        return {
            submission.student.id: {g.name: g.auto_score for book in submission.notebooks for g in book.grades}
            for submission in gradebook.assignment_submissions(LAB)
            if (course.data / "autograded" / submission.student.id / LAB).is_dir()
        }


def compare(root: Path, count: int, jobs: int) -> dict[str, Any]:
    ours, plain = (Course(REPO / "solutions", root / name / "labs", root / name) for name in ("ours", "plain"))
    for course in (ours, plain):
        course.data.mkdir()
        release(course, LAB)
    students = choose(ours, root / "class", count)
    where: dict[str, float] = {}
    times = []
    for _ in range(2):
        started = time.monotonic()
        with timed(where if not times else {}):
            grade.grade(ours, LAB, root / "class", jobs=jobs)
        times.append(time.monotonic() - started)
    where["workers_in_cells"] = in_cells(ours.data)
    nbgrader_s = by_nbgrader(plain, root / "class")
    mine, theirs = scores(ours), scores(plain)
    return {
        "submissions": len(students),
        "jobs": jobs,
        "nbgrader_s": round(nbgrader_s, 2),
        "ours_s": round(times[0], 2),
        "vs_nbgrader": round(nbgrader_s / times[0], 2),
        "repeat_s": round(times[1], 2),
        "same_scores": all(mine.get(student) == points for student, points in theirs.items()),
        "scored_by_nbgrader": len(theirs),
        "where": {name: round(seconds, 2) for name, seconds in where.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time grading against plain nbgrader.")
    parser.add_argument("--submissions", type=int, default=24, metavar="N")
    parser.add_argument("--jobs", type=int, default=jobs_here(), metavar="N")
    args = parser.parse_args()
    put_programs_on_path()
    with tempfile.TemporaryDirectory(prefix="grade-bench-") as folder:
        print(json.dumps(compare(Path(folder), args.submissions, args.jobs)))


if __name__ == "__main__":
    main()
