"""What has been graded already, and from what: so a repeated run scores nobody anew, and changes nothing.

`COURSE_DATA/scored/LAB/` holds `class.json` (the hand-ins as intake found them, and all that it depended on),
`release.json`, and for each student `STUDENT.student.json` with two hashes: of all that the marks and the page were
made from, and of what was left.
A student is graded again unless both still hold, so a hand-in, a test, a rule, this program or the gradebook that
changed counts, and so does a file that was deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbgrader
from nbgrader.api import Gradebook
from sqlalchemy import text

from autograder import runs
from autograder.course import CLASS_FILE, REPO, Course
from autograder.feedback import feedback_path
from autograder.gradebook import exists
from autograder.intake import Submission
from autograder.kept import kept_release
from autograder.results import Result, load, path_of

MARKS = """
select assignment.name, submitted_assignment.student_id, submitted_assignment.timestamp, base_cell.name,
       grade.auto_score, grade.manual_score, grade.extra_credit, grade.needs_manual_grade,
       submitted_notebook.late_submission_penalty
from grade join submitted_notebook on grade.notebook_id = submitted_notebook.id
join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
join assignment on submitted_assignment.assignment_id = assignment.id
join base_cell on grade.cell_id = base_cell.id
"""
COMMENTS = """
select assignment.name, submitted_assignment.student_id, comment.manual_comment
from comment join submitted_notebook on comment.notebook_id = submitted_notebook.id
join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
join assignment on submitted_assignment.assignment_id = assignment.id
where comment.manual_comment is not null
"""
EXTENSIONS = """
select assignment.name, student_id, extension from submitted_assignment
join assignment on submitted_assignment.assignment_id = assignment.id
"""
TESTS = """
select assignment.name, source_cell.name, source_cell.source, source_cell.checksum from source_cell
join notebook on source_cell.notebook_id = notebook.id join assignment on notebook.assignment_id = assignment.id
"""
DEADLINES = "select name, duedate from assignment"


class Scored:
    """What was graded before in one lab.

    newest_tests: as `grade` has it. Example:
        scored = Scored(course, "lab01_allreduce", place, newest_tests=False)
        found = scored.found() or collect(...)
        scored.still(submission)            # its Result where nothing changed, else None
    """

    def __init__(self, course: Course, lab: str, place: Path, newest_tests: bool) -> None:
        self.course, self.lab, self.place = course, lab, place
        self.folder = course.data / "scored" / lab
        self.terms = digest(program(), lab, newest_tests, course.sandbox, _content(course.data / CLASS_FILE))
        self.in_place = place.resolve() == (course.data / "submitted").resolve()
        self._marks: dict[tuple[str, str], str] = {}
        self._tests: dict[str, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look anew at what is kept, offered and in the gradebook."""
        self.kept = tree(self.course.data / "kept" / self.lab)
        self.offered = self._offered()
        self.look()

    # -- the lab ---------------------------------------------------------------------------------------------------
    def released(self) -> bool:
        """Whether the lab was released from what its source is now, and nothing of that was changed since."""
        return _read(self.folder / "release.json").get("of") == self._released()

    def note_released(self) -> None:
        """Remember that the lab, and the older releases that the class needs, are in the gradebook."""
        self.look()
        _write(self.folder / "release.json", {"of": self._released()})

    def has(self, assignments: Iterable[str]) -> bool:
        """Whether the gradebook has the tests of all of these."""
        return all(name in self._tests for name in assignments)

    def _released(self) -> str:
        course, lab = self.course, self.lab
        files = [course.solutions / f"{lab}.py", course.solutions / lab / f"{lab}.ipynb",
                 course.releases / lab / f"{lab}.ipynb"]  # fmt: skip
        tests = {name: told for name, told in self._tests.items() if self._ours(name)}
        return digest(program(), [_content(path) for path in files], self.kept, sorted(tests.items()))

    def _offered(self) -> str:
        return digest(self.terms, self.kept, str(self.place.resolve()), tree(self.place))

    # -- the class -------------------------------------------------------------------------------------------------
    def found(self) -> list[Submission] | None:
        """The hand-ins as intake found them the last time; None where it has to look again."""
        record = _read(self.folder / "class.json")
        try:
            if record["of"] != self.offered or record["left"] != self._left(record["found"]):
                return None
            return [self._submission(one) for one in record["found"]]
        except (KeyError, TypeError, ValueError):
            return None

    def note_found(self, found: list[Submission]) -> None:
        """Remember what intake found; a place that changed meanwhile is looked at again the next time."""
        before, self.offered = self.offered, self._offered()
        if before != self.offered and not self.in_place:
            return
        plain = [_plain(one) for one in found]
        _write(self.folder / "class.json", {"of": self.offered, "left": self._left(plain), "found": plain})

    def _left(self, found: list[dict[str, Any]]) -> str:
        """A hash of what intake left in submitted/ and received/."""
        folders = [self.course.data / "submitted" / one["student"] / one["assignment"] for one in found]
        return digest([tree(folder) for folder in folders])

    def _submission(self, plain: dict[str, Any]) -> Submission:
        release = kept_release(self.course.data, self.lab, plain["release"]) if plain["release"] else None
        when = datetime.fromisoformat(plain["when"]) if plain["when"] else None
        source = Path(plain["source"]) if plain["source"] else None
        return Submission(**plain | {"release": release, "when": when, "source": source})

    # -- a student -------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Read what the gradebook says now."""
        if not exists(self.course):
            self._marks, self._tests = {}, {}
            return
        with Gradebook(self.course.gradebook_url) as gradebook:
            self._marks = _by(gradebook, 2, MARKS, COMMENTS, EXTENSIONS)
            self._tests = _by(gradebook, 1, TESTS, DEADLINES)

    def still(self, submission: Submission) -> Result | None:
        """The student's result where it was made from the same and is whole; None where it has to be made."""
        record = _read(self._path(submission))
        if record.get("of") != self._of(submission) or record.get("left") != self._results(submission):
            return None
        result = load(self.course.data, self.lab, submission.student)
        if result is not None:
            result.feedback = feedback_path(self.course, self._assignment(result, submission), submission.student)
        return result

    def note(self, submissions: Iterable[Submission]) -> None:
        """Remember what submissions were graded from, and what came of it."""
        self.look()
        for one in submissions:
            _write(self._path(one), {"of": self._of(one), "left": self._results(one)})

    def _path(self, submission: Submission) -> Path:
        return self.folder / f"{submission.student}.student.json"

    def _of(self, submission: Submission) -> str:
        folder = self.course.data / "submitted" / submission.student / submission.assignment
        return digest(self.terms, _plain(submission), tree(folder), self._tests.get(submission.assignment, ""),
                      self.kept if submission.release else "")  # fmt: skip

    def _results(self, submission: Submission) -> str:
        student, data = submission.student, self.course.data
        files = [path_of(data, self.lab, student)]
        for name in sorted({self.lab, submission.assignment}):
            files += [feedback_path(self.course, name, student), data / "autograded" / student / name / f"{name}.ipynb"]
        marks = {name: rows for (name, who), rows in self._marks.items() if who == student and self._ours(name)}
        return digest([_content(file) for file in files], sorted(marks.items()))

    def _ours(self, assignment: str) -> bool:
        return assignment == self.lab or assignment.startswith(f"{self.lab}.")

    def _assignment(self, result: Result, submission: Submission) -> str:
        return self.lab if result.status == "unreadable" else submission.assignment


@lru_cache(maxsize=1)
def program() -> str:
    """A hash of this program: all that decides marks and pages besides the hand-ins."""
    files = sorted(path for kind in ("py", "j2", "css") for path in (REPO / "autograder").rglob(f"*.{kind}"))
    return digest(runs.environment(), nbgrader.__version__, [_content(path) for path in files])


def digest(*parts: Any) -> str:
    """A hash of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def tree(place: Path) -> list[list[Any]]:
    """Names, hashes and times of all that lies at a place; links by where they lead."""
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [[str(path.relative_to(place)), *_told(path)] for path in paths if path == place or not path.is_dir()]


def _told(path: Path) -> list[Any]:
    try:
        known = path.lstat()
    except OSError:
        return []
    if stat.S_ISLNK(known.st_mode):
        return [os.readlink(path)]
    return [known.st_mtime_ns, _content(path)] if stat.S_ISREG(known.st_mode) else [known.st_mode]


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _by(gradebook: Gradebook, keys: int, *queries: str) -> dict[Any, str]:
    """Hashes of rows by their first columns."""
    rows: dict[Any, list[str]] = {}
    for number, query in enumerate(queries):
        for row in gradebook.db.execute(text(query)):
            key = row[0] if keys == 1 else tuple(row[:keys])
            rows.setdefault(key, []).append(repr((number, *row[keys:])))
    return {key: digest(sorted(told)) for key, told in rows.items()}


def _plain(submission: Submission) -> dict[str, Any]:
    one = submission
    return {"student": one.student, "source": str(one.source) if one.source else "", "notes": one.notes,
            "problem": one.problem, "release": one.release.id if one.release else "", "assignment": one.assignment,
            "platform": one.platform, "when": one.when.isoformat() if one.when else ""}  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(path: Path, record: dict[str, Any]) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(record, file, ensure_ascii=False)
    os.replace(part, path)
