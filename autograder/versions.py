"""Results of earlier runs of a class, and whose marks moved since, and why.

`COURSE_DATA/versions/LAB/NNNN.json` is written at the end of a run whose results are not those of the run before: the
results, and hashes of the tests and of the hand-ins that they came from.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import nbformat

from autograder.course import Course, UserError
from autograder.results import Result, TestResult


@dataclass(frozen=True)
class Version:
    """One run's results by student, and hashes of each test's text and of each student's notebook."""

    results: dict[str, Result]
    tests: dict[str, str]
    handed_in: dict[str, str]

    def as_record(self) -> dict[str, Any]:
        plain = {student: result.as_record() for student, result in sorted(self.results.items())}
        return {"results": plain, "tests": self.tests, "handed_in": self.handed_in}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Version:
        results = {student: Result.from_record(plain) for student, plain in record["results"].items()}
        return cls(results, record["tests"], record["handed_in"])


def version_of(course: Course, lab: str, results: list[Result]) -> Version:
    """What a run that has just ended came to."""
    notebook = nbformat.read(course.solutions / lab / f"{lab}.ipynb", as_version=4)
    marks = [(cell, cell.metadata.get("nbgrader") or {}) for cell in notebook.cells]
    tests = {mark["grade_id"]: _hash(cell.source.encode()) for cell, mark in marks if mark.get("grade")}
    handed_in = {}
    for result in results:
        folder = course.data / "submitted" / result.student
        books = sorted(path for path in folder.glob(f"{lab}*/{lab}*.ipynb"))
        handed_in[result.student] = _hash(b"".join(_answers(path) for path in books))
    return Version({result.student: result for result in results}, tests, handed_in)


def _answers(path: Path) -> bytes:
    """What a student wrote in a notebook: not its tests, which a new release replaces."""
    cells = nbformat.read(path, as_version=4).cells
    own = [c.source for c in cells if not (c.metadata.get("nbgrader") or {}).get("locked")]
    return json.dumps(own).encode()


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


def _files(course: Course, lab: str) -> list[Path]:
    return sorted((course.data / "versions" / lab).glob("[0-9]*.json"))


def keep_version(course: Course, lab: str, results: list[Result]) -> None:
    """Keep a run's results, unless they are those of the run before."""
    files = _files(course, lab)
    before = _read(files[-1]) if files else None
    if before is not None and before["results"] == {result.student: result.as_record() for result in results}:
        return
    record = version_of(course, lab, results).as_record()
    number = int(files[-1].stem) + 1 if files else 1
    target = course.data / "versions" / lab / f"{number:04d}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=target.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(record, file, ensure_ascii=False, indent=1)
    os.replace(part, target)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def compare(course: Course, lab: str, with_what: str) -> str:
    """Whose marks moved since an earlier run, and why; `with_what` is a kept version's file, or "last".

    The newest version is the one compared; "last" is the one before it.

    Raises:
        UserError: there is no such version.
    """
    files = _files(course, lab)
    if with_what == "last" and len(files) < 2:
        return f"Nothing to compare: the results of {lab} have been the same in all runs so far."
    path = files[-2] if with_what == "last" else Path(with_what)
    record = _read(path)
    try:
        before = Version.from_record(record or {})
    except (KeyError, TypeError):
        raise UserError(
            f"{path} is no kept version of results: give `last`, or a file of {course.data / 'versions' / lab}."
        ) from None
    after = Version.from_record(json.loads(files[-1].read_text(encoding="utf-8")))
    lines = [line for student in sorted({*before.results, *after.results}) for line in _moved(student, before, after)]
    changed = sorted(name for name, told in after.tests.items() if before.tests.get(name) != told)
    head = f"Since {path.name}: " + (f"tests changed: {', '.join(changed)}." if changed else "no test changed.")
    return "\n".join([head, *(lines or ["Nobody's marks moved."])])


def _moved(student: str, before: Version, after: Version) -> list[str]:
    old, new = before.results.get(student), after.results.get(student)
    if old is None or new is None:
        return [f"{student}: " + (f"new, {_score(new)}" if new else f"not in this run; was {_score(old)}")]
    again = before.handed_in.get(student) != after.handed_in.get(student)
    moved = [line for name in _names(old, new) if (line := _test(name, old, new, before, after, again))]
    if not moved and _score(old) == _score(new):
        return []
    why = "" if moved else ": " + ("; ".join(note for note in new.notes if note not in old.notes) or "no test moved")
    return [f"{student}: {_score(old)} -> {_score(new)}{why}", *moved]


def _names(old: Result, new: Result) -> list[str]:
    return list(dict.fromkeys(test.id for test in [*old.tests, *new.tests]))


def _score(result: Result) -> str:
    return "no grade" if result.status == "unreadable" else f"{result.score:g} / {result.max_score:g}"


def _test(name: str, old: Result, new: Result, before: Version, after: Version, again: bool) -> str:
    """One test's line where its points moved: from what to what, and for which reason."""
    was, now = (next((test for test in result.tests if test.id == name), None) for result in (old, new))
    if (was.points if was else None) == (now.points if now else None):
        return ""
    reasons = []
    if before.tests.get(name) != after.tests.get(name):
        reasons.append("the test was changed")
    if again:
        reasons.append("a new hand-in")
    if was and now and was.status == now.status:
        reasons.append("marked by hand")
    why = " and ".join(reasons) or "the same test and answer: look at both messages"
    return f"  {name}: {_points(was)} -> {_points(now)}, {why}{_said(was, now)}"


def _points(test: TestResult | None) -> str:
    return f"{test.points:g} ({test.status})" if test else "absent"


def _said(was: TestResult | None, now: TestResult | None) -> str:
    """The message that went or came, its first line."""
    shown = now if now and now.status != "passed" else was
    message = shown.message.splitlines()[0] if shown and shown.message else ""
    return f"; {'it says' if shown is now else 'it said'}: {message}" if message else ""
