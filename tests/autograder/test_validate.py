"""A student's three ways to be judged say the same: `utils.selfcheck`, nbgrader's Validate, and grading."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.validator import Validator
from traitlets.config import Config

from autograder.course import REPO, Course
from autograder.grade import grade
from autograder.sandbox import why_not

TOY = "lab90_toy"
ANSWERS: dict[str, tuple[dict[str, str], set[str]]] = {
    "right": ({}, set()),
    "wrong": ({"pass_on": "def pass_on(x):\n    return x"}, {"pass_on_two"}),
    "hangs": ({"answer_steps": "def answer_steps(p):\n    while True:\n        pass"}, {"steps_form", "steps_value"}),
}

pytestmark = [
    pytest.mark.heavy, pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
]  # fmt: skip


@pytest.fixture(scope="module")
def handed_in(answered: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("class")
    for student, (cells, _) in ANSWERS.items():
        notebook = answered(**cells)
        for cell in notebook.cells:  # as a student would have it: no marks of the reference
            if cell.metadata.get("nbgrader", {}).get("solution"):
                lines = cell.source.splitlines()
                cell.source = "\n".join(line for line in lines if "### BEGIN" not in line and "### END" not in line)
        nbformat.write(notebook, place / f"{student}.ipynb")
    return place


def quick() -> dict[str, str]:
    return os.environ | {"UTILS_TIMEOUT": "4", "PYTHONPATH": str(REPO)}


def by_selfcheck(path: Path) -> tuple[set[str], int]:
    done = subprocess.run(
        [sys.executable, "-m", "utils.selfcheck", str(path)], capture_output=True, text=True, env=quick(), timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(re.findall(r"^(?:failed|stopped)\s+(\w+)", done.stdout, re.MULTILINE)), done.returncode


def by_validate(path: Path) -> set[str]:
    """What the button of JupyterLab shows as failed, by the names of the cells."""
    config = Config()
    config.Execute.timeout = 120
    found = Validator(config=config).validate(str(path))
    assert set(found) <= {"failed"}, found  # no cell is said to have changed
    names = {cell.source.strip(): cell.metadata.get("nbgrader", {}).get("grade_id")
             for cell in nbformat.read(path, as_version=4).cells}  # fmt: skip
    return {names[cell["source"]] for cell in found.get("failed", [])}


@pytest.mark.parametrize("student", ANSWERS)
def test_selfcheck_and_validate_agree(student: str, handed_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTILS_TIMEOUT", "4")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    wanted = ANSWERS[student][1]
    path = handed_in / f"{student}.ipynb"
    before = path.read_bytes()
    assert by_selfcheck(path) == (wanted, 1 if wanted else 0)
    assert by_validate(path) == wanted
    assert path.read_bytes() == before


@pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why")
def test_grading_agrees_with_both_on_what_students_see(toy_course: Course, handed_in: Path, tmp_path: Path) -> None:
    course = Course(toy_course.solutions, toy_course.releases, tmp_path / "data")
    for result in grade(course, TOY, handed_in):
        lost = {test.id for test in result.tests if test.points < test.max_points}
        assert lost == ANSWERS[result.student][1], (result.student, [test.message for test in result.tests])
