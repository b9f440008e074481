"""A toy course of two tasks, and its class, graded once for all tests that look at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from autograder.course import REPO, Course
from autograder.release import release

TOY = "lab90_toy"


@pytest.fixture(scope="module")  # tests grade into it
def toy_course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """The toy course with its lab released."""
    root = tmp_path_factory.mktemp("toy")
    shutil.copytree(REPO / "tests" / "toy_lab" / "solutions", root / "solutions")
    course = Course(root / "solutions", root / "labs", root / "data")
    release(course, TOY)
    return course


@pytest.fixture(scope="module")
def answered(toy_course: Course) -> Callable[..., Any]:
    """Makes a submission: the release with some solution cells filled in, the others with the reference."""
    released = toy_course.releases / TOY / f"{TOY}.ipynb"
    instructors = nbformat.read(toy_course.solutions / TOY / f"{TOY}.ipynb", as_version=4)
    reference = {cell.id: cell.source for cell in instructors.cells}

    def make(**cells: str) -> Any:
        notebook = nbformat.read(released, as_version=4)
        for cell in notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                cell.source = cells.get(cell.id, reference[cell.id])
        return notebook

    return make
