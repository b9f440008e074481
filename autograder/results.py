"""What became of each submission, kept in the course-data folder as `results/LAB/STUDENT.json`.

The gradebook has the marks, and the last word on them; the files have what it cannot hold: the status, notes of
intake, messages, and flags for a person to look at.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from autograder.course import Course


@dataclass
class TestResult:
    """One test of one submission; status is passed, failed, stopped or not run."""

    __test__: ClassVar[bool] = False  # its name looks like a test to pytest

    id: str
    points: float
    max_points: float
    status: str
    message: str


@dataclass
class Result:
    """One submission; status is graded, partly graded (some tests could not run) or unreadable.

    flags are sentences about what a person should look at, such as a forged result; isolation says what kept the
    submission apart from this machine, "not isolated" where nothing did; platform is the student's number where the
    hand-in came from a learning platform, such as "canvas 340934".
    """

    student: str
    status: str
    score: float
    max_score: float
    notes: list[str]
    tests: list[TestResult]
    flags: list[str] = field(default_factory=list)
    isolation: str = ""
    platform: str = ""
    feedback: Path | None = None

    def as_record(self) -> dict[str, Any]:
        """The result as plain data, without the path of its feedback page."""
        record = asdict(self)
        del record["feedback"]
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Result:
        """The result that `as_record` was made from."""
        return cls(**{**record, "tests": [TestResult(**test) for test in record["tests"]]})


def folder(data: Path, lab: str) -> Path:
    """Where the results of a lab are."""
    return data / "results" / lab


def path_of(data: Path, lab: str, student: str) -> Path:
    """Where a student's result is."""
    return folder(data, lab) / f"{student}.json"


def save(course: Course, lab: str, result: Result) -> Path:
    """Write one result, whole or not at all, in place of the student's earlier one; its path."""
    target = path_of(course.data, lab, result.student)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result.as_record(), indent=1, ensure_ascii=False)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(name, target)
    return target


def load(data: Path, lab: str, student: str) -> Result | None:
    """One student's result, or None where there is none yet."""
    try:
        text = path_of(data, lab, student).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return Result.from_record(json.loads(text))


def load_all(data: Path, lab: str) -> list[Result]:
    """The results of a whole class, by student name."""
    students = sorted(path.stem for path in folder(data, lab).glob("*.json"))
    return [result for student in students if (result := load(data, lab, student))]
