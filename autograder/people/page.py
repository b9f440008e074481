"""What a feedback page shows, taken from a graded notebook: its tests by task, then the student's own cells.

Nothing of a test's text gets in: of a test cell only its name, points, status and message are read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nbgrader.utils import is_grade

from autograder.results import Result
from utils.selfcheck.notebook import kind_of

OUTPUT_CHARS = 4000
LONG_LINE = 400
PNG = b"\x89PNG\r\n\x1a\n"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HEADING = re.compile(r"^(#{1,4})\s+(.+?)\s*#*$", re.MULTILINE)


@dataclass(frozen=True)
class TestView:
    """One test: `says` is the first line of its message, `detail` the rest (a hang report, say)."""

    name: str
    points: float
    max_points: float
    status: str
    says: str = ""
    detail: str = ""
    comment: str = ""
    picture: str = ""


@dataclass(frozen=True)
class Task:
    """The tests that stand under one heading of the lab."""

    heading: str
    tests: list[TestView]

    @property
    def points(self) -> float:
        return sum(test.points for test in self.tests)

    @property
    def max_points(self) -> float:
        return sum(test.max_points for test in self.tests)


@dataclass(frozen=True)
class Output:
    """One output of a cell, as text or as a PNG in base64."""

    text: str = ""
    picture: str = ""


@dataclass(frozen=True)
class CellView:
    """A cell that is the student's: number is that of In[number], 0 where it did not run."""

    number: int
    name: str
    heading: str
    source: str
    answer: bool
    message: str = ""
    outputs: list[Output] = field(default_factory=list)
    comment: str = ""


@dataclass(frozen=True)
class Page:
    """All that is on one page."""

    title: str
    lab: str
    student: str
    status: str
    score: float
    max_score: float
    penalty: float = 0.0
    isolation: str = ""
    notes: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    cells: list[CellView] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Score of the highest score, from 0 to 1."""
        return min(1.0, max(0.0, self.score / self.max_score)) if self.max_score else 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Number of tests by status."""
        counts: dict[str, int] = {}
        for task in self.tasks:
            for test in task.tests:
                counts[test.status] = counts.get(test.status, 0) + 1
        return counts

    @property
    def numbers(self) -> set[int]:
        """The cells that can be pointed at."""
        return {cell.number for cell in self.cells if cell.number}


def page_of(notebook: Any, lab: str, student: str, record: Result | None = None, penalty: float = 0.0) -> Page:
    """The page of a graded notebook whose cells carry their scores (nbgrader's GetGrades puts them there).

    record adds what the notebook does not hold, such as notes of intake; without one the page stands on the
    notebook alone, as after plain `nbgrader autograde`.
    """
    tasks: dict[str, list[TestView]] = {}
    told: dict[str, str] = {}  # message -> the first test that has it
    cells = []
    for heading, cell in with_headings(notebook.cells):
        if is_grade(cell):
            tasks.setdefault(heading, []).append(_test(cell, told))
        if cell.cell_type == "code" and kind_of(cell) in ("solution", "plain") and cell.source.strip():
            cells.append(_own_cell(cell, heading))
    tests = [test for views in tasks.values() for test in views]
    notes = list(notebook.metadata.get("grading", {}).get("notes", []))
    if record and _same_run(record, notebook):
        notes = record.notes
    partly = any(test.status == "not run" for test in tests)
    return Page(
        title=_title(notebook, lab),
        lab=lab,
        student=student,
        status="partly graded" if partly else "graded",
        score=max(0.0, sum(test.points for test in tests) - penalty),
        max_score=sum(test.max_points for test in tests),
        penalty=penalty,
        isolation=notebook.metadata.get("grading", {}).get("isolation", ""),
        notes=notes,
        tasks=[Task(heading, views) for heading, views in tasks.items()],
        cells=cells,
    )


def _same_run(record: Result, notebook: Any) -> bool:
    """Whether a record tells of the run that the notebook holds; plain `nbgrader autograde` writes no record."""
    ran = {
        cell.metadata.nbgrader.grade_id: cell.metadata.grading.get("status")
        for cell in notebook.cells
        if is_grade(cell) and "grading" in cell.metadata
    }
    return {test.id: test.status for test in record.tests} == ran


def unreadable_page(lab: str, result: Result) -> Page:
    """The page of a submission that could not be graded: it says why, and shows no score."""
    return Page(lab, lab, result.student, result.status, 0.0, result.max_score, notes=result.notes)


def with_headings(cells: list[Any]) -> Iterator[tuple[str, Any]]:
    """Each cell with the nearest heading above it."""
    heading = ""
    for cell in cells:
        if cell.cell_type == "markdown" and (found := headings(cell.source)):
            heading = found[-1]
        yield heading, cell


def headings(markdown: str) -> list[str]:
    """The headings in a markdown text, as plain text; fenced code is not looked at.

    >>> headings("# Lab 01\\n## `ring_all_reduce`\\n```\\n# a comment\\n```")
    ['Lab 01', 'ring_all_reduce']
    """
    unfenced = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"[`*]", "", text) for _, text in _HEADING.findall(unfenced)]


def _title(notebook: Any, lab: str) -> str:
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (found := headings(cell.source)):
            return found[0]
    return lab


def _test(cell: Any, told: dict[str, str]) -> TestView:
    meta, grading = cell.metadata.nbgrader, cell.metadata.get("grading", {})
    highest = float(meta.get("points") or 0)
    score = float(meta.get("score") or 0)
    status = grading.get("status") or ("passed" if score >= highest else "failed")
    message = grading.get("message", "").strip()
    says, _, detail = message.partition("\n")
    first = told.setdefault(message, meta["grade_id"])
    if detail and first != meta["grade_id"]:
        says, detail = f"{says} The report is that of {first}.", ""
    elif len(says) > LONG_LINE:
        says, detail = says[:160].rsplit(" ", 1)[0] + " ...", message
    return TestView(
        meta["grade_id"], score, highest, status, says, detail, meta.get("comment") or "", _png(grading.get("png"))
    )


def _own_cell(cell: Any, heading: str) -> CellView:
    meta, grading = cell.metadata.get("nbgrader", {}), cell.metadata.get("grading", {})
    answer = bool(meta.get("solution"))
    message = grading.get("message", "")
    outputs = [shown for output in cell.outputs if (shown := _output(output, message))]
    return CellView(
        int(cell.execution_count or 0),
        meta["grade_id"] if answer else "",
        heading,
        cell.source,
        answer,
        message,
        outputs,
        meta.get("comment") or "",
    )


def _output(output: Any, message: str) -> Output | None:
    """An output without anything that a browser would run: plain text, or a picture."""
    if output.output_type == "stream":
        return _text(output.text, message)
    if output.output_type == "error":
        return _text("\n".join(output.traceback), message)
    data = output.get("data", {})
    if picture := _png(data.get("image/png")):
        return Output(picture=picture)
    return _text(str(data.get("text/plain", "")), message)


def _text(text: str, message: str) -> Output | None:
    text = _ANSI.sub("", text).strip("\n")
    if not text.strip() or text.strip() == message.strip():
        return None
    if len(text) > OUTPUT_CHARS:
        half = OUTPUT_CHARS // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return Output(text=text)


def _png(data: Any) -> str:
    """Base64 text of a PNG, or an empty string for anything else."""
    try:
        raw = base64.b64decode(re.sub(r"\s", "", data or ""), validate=True)
    except (TypeError, ValueError, binascii.Error):
        return ""
    return base64.b64encode(raw).decode() if raw.startswith(PNG) else ""
