"""The class of a lab, student by student: marks from the gradebook, messages and notes from the kept results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry

from autograder.course import Course, UserError, put_programs_on_path
from autograder.gradebook import exists, told
from autograder.results import Result, TestResult, load_all, path_of

NOT_HANDED_IN = "not handed in"
BY_HAND = "to be marked by hand"
OTHER_CELLS = "cells of their own"
NO_GRADE = ("unreadable", NOT_HANDED_IN, BY_HAND)


@dataclass
class Entry:
    """One student of the class; result is None where nothing was handed in.

    status is that of the result, or NOT_HANDED_IN, or BY_HAND while a mark by a person is missing.
    """

    student: str
    status: str
    result: Result | None
    max_score: float
    penalty: float = 0.0
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    timestamp: str = ""
    duedate: str = ""
    platform: str = ""  # the number on a learning platform: "canvas 340934", "moodle 12"
    assignment: str = ""  # its name in the gradebook: the lab's, or that of an older release

    @property
    def score(self) -> float | None:
        """Points after the late penalty; None where there is no grade, which is not a zero."""
        if self.status in NO_GRADE or self.result is None:
            return None
        return max(0.0, self.result.score - self.penalty)


def class_of(course: Course, lab: str) -> list[Entry]:
    """Everyone in the gradebook, and everyone whose submission could not be read, by name.

    Points are the gradebook's, so marks given or mended by hand count.

    Raises:
        UserError: the lab has never been released or graded here.
    """
    if not exists(course):
        raise UserError(f"There is no gradebook in {course.data}: grade {lab} first, or set COURSE_DATA.")
    put_programs_on_path()
    with told(course.gradebook_url), Gradebook(course.gradebook_url) as gradebook:
        return class_in(gradebook, course.data, lab)


def class_in(gradebook: Gradebook, data: Path, lab: str) -> list[Entry]:
    """The same from an open gradebook and the course-data folder.

    Raises:
        UserError: the gradebook does not know the lab.
    """
    names = releases_of(lab, [assignment.name for assignment in gradebook.assignments])
    if lab not in names:
        raise UserError(f"The gradebook in {data} does not know {lab}: grade it first.")
    assignment = gradebook.find_assignment(lab)
    highest = float(assignment.max_score)
    kept = {result.student: result for result in load_all(data, lab)}
    entries = {}
    for student in gradebook.students:
        entry = entries[student.id] = Entry(student.id, NOT_HANDED_IN, kept.get(student.id), highest, assignment=lab)
        entry.first_name, entry.last_name = student.first_name or "", student.last_name or ""
        entry.email = student.email or ""
        _mark(entry, gradebook, data, names)
    for student, result in kept.items():
        if result.status == "unreadable" and student not in entries:
            entries[student] = Entry(student, "unreadable", result, highest, assignment=lab)
    for entry in entries.values():
        entry.platform = kept[entry.student].platform if entry.student in kept else ""
        entry.duedate = str(assignment.duedate or "")
    return [entries[student] for student in sorted(entries)]


def releases_of(lab: str, assignments: list[str]) -> list[str]:
    """The lab and its older releases, which stand in the gradebook as LAB.RELEASE, by their names there."""
    return [name for name in sorted(assignments) if name == lab or name.startswith(f"{lab}.")]


def _mark(entry: Entry, gradebook: Gradebook, data: Path, names: list[str]) -> None:
    """Put into an entry what the gradebook has of the student, under whichever release that is."""
    for name in names:
        try:
            submission = gradebook.find_submission(name, entry.student)
            graded = gradebook.find_submission_notebook(name, name, entry.student)
        except MissingEntry:
            continue
        entry.assignment = name
        entry.timestamp = str(submission.timestamp or "")
        entry.penalty = float(submission.late_submission_penalty or 0)
        points = {grade.name: (float(grade.score), float(grade.max_score)) for grade in graded.grades}
        entry.result = _with_points(_told(entry, data), points)
        entry.max_score = entry.result.max_score
        entry.status = BY_HAND if submission.needs_manual_grade else entry.result.status
        return
    if entry.result and entry.result.status == "unreadable":
        entry.status = "unreadable"
    else:
        entry.result = None


def _told(entry: Entry, data: Path) -> Result:
    """The kept result, or what the graded notebook tells where that is newer: `nbgrader autograde` keeps no result."""
    notebook = data / "autograded" / entry.student / entry.assignment / f"{entry.assignment}.ipynb"
    record = path_of(data, entry.assignment, entry.student)
    if entry.result and not (notebook.exists() and notebook.stat().st_mtime > record.stat().st_mtime):
        return entry.result
    return _from_notebook(notebook, entry.student)


def _with_points(result: Result, points: dict[str, tuple[float, float]]) -> Result:
    """The result with the gradebook's points, and with the tasks that only a person marks."""
    tests = {test.id: test for test in result.tests}
    for name in points:
        tests.setdefault(name, TestResult(name, 0.0, 0.0, "marked by hand", ""))
    for name, test in tests.items():
        test.points, test.max_points = points.get(name, (test.points, test.max_points))
    result.tests = list(tests.values())
    result.score = sum(test.points for test in result.tests)
    result.max_score = sum(test.max_points for test in result.tests)
    return result


def _from_notebook(path: Path, student: str) -> Result:
    notebook = nbformat.read(path, as_version=4) if path.exists() else nbformat.v4.new_notebook()
    tests = [
        TestResult(cell.metadata["nbgrader"]["grade_id"], 0.0, 0.0, told["status"], told["message"])
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade") and (told := cell.metadata.get("grading"))
    ]
    status = "partly graded" if any(test.status == "not run" for test in tests) else "graded"
    told = notebook.metadata.get("grading", {})
    notes, flags = list(told.get("notes", [])), list(told.get("flags", []))
    return Result(student, status, 0.0, 0.0, notes, tests, flags, told.get("isolation", ""))


def answers_of(course: Course, entries: list[Entry]) -> dict[str, dict[str, str]]:
    """The code that students wrote, by student and task; other cells of theirs stand under OTHER_CELLS."""
    found = {}
    for entry in entries:
        for folder in ("submitted", "autograded"):
            path = course.data / folder / entry.student / entry.assignment / f"{entry.assignment}.ipynb"
            if entry.result and path.exists():
                found[entry.student] = _own_code(path)
                break
    return found


def _own_code(path: Path) -> dict[str, str]:
    cells: dict[str, str] = {}
    others = []
    for cell in nbformat.read(path, as_version=4).cells:
        meta: dict[str, Any] = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and meta.get("solution"):
            cells[meta["grade_id"]] = cell.source
        elif cell.cell_type == "code" and not meta.get("grade_id"):
            others.append(cell.source)
    return cells | {OTHER_CELLS: "\n\n".join(others)}

