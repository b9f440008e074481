"""A test is mended and the class graded again: whose marks moved is told with the reason; marks by hand stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder.course import REPO, Course, UserError
from autograder.grade import grade
from autograder.results import Result, TestResult
from autograder.versions import Version, _moved, compare

TOY = "lab90_toy"
FIVE = {"answer_steps": "def answer_steps(p):\n    return 5"}


@pytest.mark.heavy
def test_a_mended_test_moves_marks_and_compare_tells_why(answered: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(REPO / "tests" / "toy_lab" / "solutions", tmp_path / "solutions")
    course = Course(tmp_path / "solutions", tmp_path / "labs", tmp_path / "data")
    place = tmp_path / "class"
    place.mkdir()
    for student, cells in {"Ada": {}, "Bo": FIVE, "Cy": FIVE}.items():
        nbformat.write(answered(**cells), place / f"{student}.ipynb")
    assert [result.score for result in grade(course, TOY, place, jobs=2)] == [20, 14, 14]
    assert "Nothing to compare" in compare(course, TOY, "last")

    with Gradebook(course.gradebook_url) as gradebook:
        gradebook.find_grade("pass_on_two", TOY, TOY, "Cy").manual_score = 2.0
        gradebook.find_comment("answer_steps", TOY, TOY, "Cy").manual_comment = "see me"
        gradebook.db.commit()
    source = course.solutions / f"{TOY}.py"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("assert run.value == 6,", "assert run.value in (5, 6),"), encoding="utf-8")
    assert text != source.read_text(encoding="utf-8")
    assert [result.score for result in grade(course, TOY, place, jobs=2)] == [20, 20, 17]

    told = compare(course, TOY, "last").splitlines()
    assert told[0] == "Since 0001.json: tests changed: steps_value."
    assert told[1] == "Bo: 14 / 20 -> 20 / 20"
    assert told[2].startswith("  steps_value: 0 (failed) -> 6 (passed), the test was changed; it said: 5 messages")
    assert told[3] == "Cy: 14 / 20 -> 17 / 20"
    assert told[4] == "  pass_on_two: 5 (passed) -> 2 (passed), marked by hand"
    assert len(told) == 6
    assert compare(course, TOY, str(course.data / "versions" / TOY / "0001.json")).splitlines() == told
    with Gradebook(course.gradebook_url) as gradebook:
        assert gradebook.find_grade("pass_on_two", TOY, TOY, "Cy").manual_score == 2.0
        assert gradebook.find_comment("answer_steps", TOY, TOY, "Cy").comment == "see me"
    with pytest.raises(UserError, match="no kept version"):
        compare(course, TOY, str(source))


def version(points: float, status: str, notes: tuple[str, ...] = (), answer: str = "a", penalty: float = 0) -> Version:
    test = TestResult("t", points, 5, status, "" if status == "passed" else "wrong sum")
    result = Result("Ada", "graded", points - penalty, 5, list(notes), [test])
    return Version({"Ada": result}, {"t": "1"}, {"Ada": answer})


def test_reasons_for_a_move() -> None:
    before = version(5, "passed")
    assert _moved("Ada", before, before) == []
    assert _moved("Ada", before, version(0, "failed", answer="b")) == [
        "Ada: 5 / 5 -> 0 / 5",
        "  t: 5 (passed) -> 0 (failed), a new hand-in; it says: wrong sum",
    ]
    late = version(5, "passed", ("handed in 1 h late",), penalty=1)
    assert _moved("Ada", before, late) == ["Ada: 5 / 5 -> 4 / 5: handed in 1 h late"]
    unlike = _moved("Ada", before, version(0, "stopped"))
    assert "the same test and answer: look at both messages" in unlike[1]
    assert _moved("Ada", Version({}, {}, {}), before) == ["Ada: new, 5 / 5"]
    unreadable = Version({"Ada": Result("Ada", "unreadable", 0, 5, ["torn"], [])}, {}, {"Ada": "b"})
    assert _moved("Ada", unreadable, before)[0] == "Ada: no grade -> 5 / 5"
