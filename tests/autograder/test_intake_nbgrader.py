"""Plain `nbgrader autograde` and formgrader's button: the same mending as our own command, and no false alarm."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde

from autograder.course import Course, run_converter
from autograder.intake import mend_in_place
from tests.autograder.intake_tools import TOY, Answered, put, released

LINES = ("checksum", "multiple times", "Missing grade cell", "Traceback")


@pytest.mark.heavy
def test_nbgraders_own_command_mends_first(toy_course: Course, answered: Answered) -> None:
    folder = toy_course.data / "submitted"
    put(folder / "Honest" / TOY / f"{TOY}.ipynb", answered())
    stripped = answered()
    for i, cell in enumerate(stripped.cells):
        cell.metadata, cell.id = {}, f"c{i}"
    stripped.cells = [cell for cell in stripped.cells if "changed its input" not in cell.source]
    put(folder / "Mended" / TOY / f"{TOY} (1).ipynb", nbformat.writes(stripped).encode("utf-16"))
    put(folder / "Blank" / TOY / f"{TOY}.ipynb", released(toy_course))
    scores = {}
    for student in ("Honest", "Mended", "Blank"):
        log = run_converter(Autograde, toy_course, TOY, student)
        assert not [line for line in log.splitlines() if any(word in line for word in LINES)]
        with Gradebook(toy_course.gradebook_url) as gradebook:
            submission = gradebook.find_submission(TOY, student)
            scores[student] = submission.score
            assert not submission.needs_manual_grade
    assert scores == {"Honest": 20, "Mended": 20, "Blank": 0}
    assert (toy_course.data / "received" / "Mended" / TOY / f"{TOY} (1).ipynb").is_file()


def test_mending_again_does_nothing(toy_course: Course, answered: Answered) -> None:
    path = toy_course.data / "submitted" / "Twice" / TOY / f"{TOY}.ipynb"
    damaged = answered()
    damaged.cells.pop()
    put(path, damaged)
    mend_in_place(toy_course, TOY, "Twice")
    first, written = path.read_bytes(), path.stat().st_mtime_ns
    mend_in_place(toy_course, TOY, "Twice")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (first, written)
    assert Path(toy_course.data / "received" / "Twice" / TOY / f"{TOY}.ipynb").read_text() != first.decode()
