"""What the tests of intake share: hand-ins to make, and what became of them."""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

from autograder.course import Course
from autograder.intake import Submission, collect, grade_id

TOY = "lab90_toy"


def put(path: Path, content: Any = "{}") -> Path:
    """Write a notebook, text or bytes, making the folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else nbformat.writes(content), encoding="utf-8")
    return path


def zipped(path: Path, members: dict[str, Any]) -> Path:
    """A zip file of notebooks, texts or bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, bytes | str) else nbformat.writes(content))
    return path


def released(course: Course) -> Any:
    """The toy lab as students get it."""
    return nbformat.read(course.releases / TOY / f"{TOY}.ipynb", as_version=4)


def cell_of(notebook: Any, name: str) -> Any:
    """The cell of a task."""
    return next(cell for cell in notebook.cells if grade_id(cell) == name or cell.id == name)


def place_of(notebook: Any, name: str) -> int:
    """Where the cell of a task is."""
    return next(i for i, cell in enumerate(notebook.cells) if grade_id(cell) == name)


def copied(cell: Any, **changes: Any) -> Any:
    """A copy of a cell as an editor makes it: the same marks, an id of its own."""
    twin = copy.deepcopy(cell)
    twin.id = f"copy-{id(twin)}"
    twin.update(changes)
    return twin


def extra(source: str) -> Any:
    """A student's own cell."""
    return nbformat.v4.new_code_cell(source)


def taken(course: Course, submission: Submission) -> Any:
    """The notebook that intake put into submitted/."""
    name = submission.assignment
    return nbformat.read(course.data / "submitted" / submission.student / name / f"{name}.ipynb", as_version=4)


def hand_in(course: Course, folder: Path, content: Any) -> tuple[Submission, Any]:
    """What becomes of one notebook (or its bytes) that is handed in alone: the submission and its notebook."""
    put(folder / "Ada.ipynb", content)
    (submission,) = collect(folder, TOY, course)
    return submission, None if submission.problem else taken(course, submission)


Answered = Callable[..., Any]
