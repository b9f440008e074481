"""Scores as CSV: a gradebook of our own, and what Canvas and Moodle read.

Canvas finds a student by ID, SIS User ID, SIS Login ID, then name; its second row has the points possible; any
further column would become an assignment, so no status is written there. Moodle's file of grades is mapped column by
column when it is read; its "offline grading worksheet" is matched by Identifier. Either's own download can be given
as a roster: then its scores are filled in and all else stays as it is.

Who has no grade gets an empty field, never 0.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograder.course import UserError
from autograder.people.roll import Entry
from autograder.people.roster import Roster

FORMATS = ("gradebook", "canvas", "moodle")
CANVAS_POINTS = "    Points Possible"
GRADEBOOK = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score", "status", "platform_id",
)  # fmt: skip


@dataclass
class Exported:
    """What to write, and who is not in it: without a grade, not in the roster, or decided upon in Canvas.

    delimiter and mark are those of the roster: a spreadsheet in some languages opens no other file rightly.
    """

    rows: list[list[Any]]
    without_grade: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    delimiter: str = ","
    mark: str = ""


def export(entries: Sequence[Entry], lab: str, form: str, roster: Path | None = None) -> Exported:
    """The rows of a CSV file in one of FORMATS, its header first.

    Raises:
        UserError: the roster cannot be read, or does not fit the format or the lab.

    Example:
        export(class_of(course, lab), lab, "canvas").rows[0]
        # ['Student', 'ID', 'SIS User ID', 'SIS Login ID', 'Section', 'lab01_allreduce']
    """
    if roster and form == "gradebook":
        raise UserError("A roster is for --format canvas or moodle: it is the file that they let you download.")
    rows = {"gradebook": gradebook_rows, "canvas": canvas_rows, "moodle": moodle_rows}
    made = _filled(entries, lab, form, roster) if roster else Exported(rows[form](entries, lab))
    made.without_grade = [f"{entry.student} ({entry.status})" for entry in entries if entry.score is None]
    return made


def gradebook_rows(entries: Iterable[Entry], lab: str, tests: bool = True) -> list[list[Any]]:
    """nbgrader's own columns, then the status, the number on a learning platform, and the points of each test."""
    entries = list(entries)
    names = [test.id for entry in entries if entry.result for test in entry.result.tests] if tests else []
    names = list(dict.fromkeys(names))
    rows: list[list[Any]] = [[*GRADEBOOK, *names]]
    for entry in entries:
        graded = entry.score is not None and entry.result is not None
        points = {test.id: test.points for test in entry.result.tests} if graded else {}
        rows.append(
            [
                lab,
                entry.duedate,
                entry.timestamp,
                plain(entry.student),
                plain(entry.last_name),
                plain(entry.first_name),
                plain(entry.email),
                entry.result.score if graded else "",
                entry.penalty if graded else "",
                entry.score if graded else "",
                entry.max_score,
                entry.status,
                plain(entry.platform),
                *(points.get(name, "") for name in names),
            ]
        )
    return rows


def canvas_rows(entries: Iterable[Entry], lab: str) -> list[list[Any]]:
    """Canvas's columns; ID where the hand-in came from Canvas, and the student's name here is taken for the login."""
    entries = list(entries)
    rows: list[list[Any]] = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", lab]]
    rows.append([CANVAS_POINTS, "", "", "", "", _number(entries[0].max_score if entries else None)])
    for entry in entries:
        name = ", ".join(filter(None, (entry.last_name, entry.first_name))) or entry.student
        number = entry.platform.removeprefix("canvas ") if entry.platform.startswith("canvas ") else ""
        rows.append([plain(name), number, "", plain(entry.student), "", _number(entry.score)])
    return rows


def moodle_rows(entries: Iterable[Entry], lab: str) -> list[list[Any]]:
    """Columns for Moodle's import of grades; map Username (or Email address) to the user, Grade to the lab."""
    rows: list[list[Any]] = [
        ["Username", "First name", "Last name", "Email address", "Grade", "Maximum Grade", "Status"]
    ]
    for entry in entries:
        who = [plain(text) for text in (entry.student, entry.first_name, entry.last_name, entry.email)]
        rows.append([*who, _number(entry.score), _number(entry.max_score), entry.status])
    return rows


def _filled(entries: Sequence[Entry], lab: str, form: str, path: Path) -> Exported:
    roster = Roster.read(path, form)
    highest = entries[0].max_score if entries else 0.0
    roster.prepare(lab, highest)
    graded = [entry for entry in entries if entry.score is not None]
    missing = [entry.student for entry in graded if not roster.fill(entry, _number(entry.score))]
    return Exported(roster.rows, [], missing, roster.decided, roster.delimiter, roster.mark)


def write(rows: Iterable[Sequence[Any]], path: Path, delimiter: str = ",", mark: str = "") -> None:
    """Write rows as CSV in UTF-8, quoted where needed, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(mark)
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)


def plain(text: str) -> str:
    """Text that a spreadsheet does not take for a formula: names come from whoever handed in.

    >>> plain("=1+1"), plain("O'Neil, Ann")
    ("'=1+1", "O'Neil, Ann")
    """
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _number(score: float | None) -> str:
    return "" if score is None else f"{round(score, 4):g}"
