"""The sample class: submissions made from a lab's notebook and answer files, so that they never go stale.

An answer file is a text source with a header:

    # student: O'Neil, Anna
    # about: an infinite loop in the ring
    # base: blank                     the other cells as released; without this line they hold the reference
    # loses: ring_sum, ring_uneven    the tests it must lose; `all`, or nothing
    # says: "ring_sum": "stopped"     part of the message of a test; one line for each
    # note: "ended the process"       part of a note on the submission
    # %% solution="ring_all_reduce"
    def ring_all_reduce(x): ...
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from autograder.course import REPO, Course
from autograder.intake import grade_id
from autograder.sources.cells import SourceError, read_source
from autograder.sources.headers import names_in, read_header, says_in

HEADER = ("student", "about", "base", "loses", "says", "note")
SAMPLE_CLASS = REPO / "tests" / "sample_class"


@dataclass(frozen=True)
class Sample:
    """One answer file: who, what it is, its cells by task id, and what it must lose and be told."""

    student: str
    about: str
    blank: bool
    loses: tuple[str, ...]
    says: dict[str, str]
    note: str
    cells: dict[str, str]


def read_sample(path: Path) -> Sample:
    """Read an answer file.

    Raises:
        SourceError: a line of the header cannot be read, or the student's name is missing.
    """
    source = read_source(path)
    fields = read_header(source, HEADER)
    if not fields["student"]:
        raise SourceError(f"{path.name} has no `# student:` line.")
    note = json.loads(fields["note"][0]) if fields["note"] else ""
    cells = {cell.name: cell.text for cell in source.of_kind("solution")}
    return Sample(
        " ".join(fields["student"]),
        " ".join(fields["about"]),
        fields["base"] == ["blank"],
        names_in(fields["loses"]),
        says_in(fields["says"], source),
        note,
        cells,
    )


def write_class(course: Course, lab: str, answers: Path, folder: Path) -> list[Sample]:
    """Write a submission for each answer file as `folder`/STUDENT/LAB/LAB.ipynb; needs the lab's release.

    Returns the samples, in the order of their files.
    """
    released = nbformat.read(course.releases / lab / f"{lab}.ipynb", as_version=4)
    instructors = nbformat.read(course.solutions / lab / f"{lab}.ipynb", as_version=4)
    reference = {grade_id(cell): _unmarked(cell.source) for cell in instructors.cells}
    samples = [read_sample(path) for path in sorted(answers.glob("*.py"))]
    for sample in samples:
        notebook = _submission(released, reference, sample)
        target = folder / sample.student / lab / f"{lab}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)
    return samples


def _unmarked(source: str) -> str:
    """A reference answer as a student would hand it in: without the lines that mark it."""
    return "\n".join(line for line in source.splitlines() if "### BEGIN" not in line and "### END" not in line)


def _submission(released: Any, reference: dict[str, str], sample: Sample) -> Any:
    notebook = copy.deepcopy(released)
    known = set()
    for cell in notebook.cells:
        name = grade_id(cell)
        if name and cell.metadata["nbgrader"].get("solution"):
            known.add(name)
            cell.source = sample.cells.get(name, cell.source if sample.blank else reference[name])
    unknown = set(sample.cells) - known
    if unknown:
        raise SourceError(
            f"The sample answer of {sample.student} answers {', '.join(sorted(unknown))}, "
            "which the lab does not ask for."
        )
    return notebook
