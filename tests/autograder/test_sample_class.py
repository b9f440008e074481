"""The sample class of the first lab: each submission loses what its file says, no more, and is told why."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from autograder.course import Course
from autograder.grade import Result, grade
from autograder.release import release
from autograder.sample import SAMPLE_CLASS, Sample, read_sample, write_class

LAB = "lab01_allreduce"
SAMPLES = {path.stem: read_sample(path) for path in sorted(SAMPLE_CLASS.glob("*.py"))}

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    root: Path = tmp_path_factory.mktemp("sample_class")
    course = Course(releases=root / "labs", data=root / "data")
    release(course, LAB)
    write_class(course, LAB, SAMPLE_CLASS, root / "class")
    return {result.student: result for result in grade(course, LAB, root / "class")}


def test_the_class_has_the_cases_that_graders_meet() -> None:
    assert {"full_marks", "blank", "wrong_ring", "builtin_all_reduce", "deadlock", "ends_the_process",
            "infinite_loop", "endless_output"} <= set(SAMPLES)  # fmt: skip
    assert any("," in sample.student for sample in SAMPLES.values())


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_it_loses_what_it_deserves_and_nothing_else(sample: Sample, graded: dict[str, Result]) -> None:
    tests = graded[sample.student].tests
    lost = {test.id for test in tests if test.points < test.max_points}
    assert lost == ({test.id for test in tests} if sample.loses == ("all",) else set(sample.loses))
    assert all(test.points == 0 for test in tests if test.id in lost)
    assert sum(test.max_points for test in tests) == graded[sample.student].max_score == 20


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_it_is_told_why(sample: Sample, graded: dict[str, Result]) -> None:
    result = graded[sample.student]
    messages = {test.id: test.message for test in result.tests}
    for test, words in sample.says.items():
        assert words in messages[test]
    assert all(messages[test.id] for test in result.tests if test.points < test.max_points)
    assert any(sample.note in note for note in result.notes) or not sample.note
    assert result.status == "graded"


def test_every_feedback_page_is_there(graded: dict[str, Result]) -> None:
    for result in graded.values():
        text = result.feedback.read_text(encoding="utf-8")
        assert "ring_all_reduce" in text
        assert "HIDDEN TESTS" not in text


def test_nothing_is_left_running(graded: dict[str, Result]) -> None:
    """Every process of a sandbox is in namespaces of its own: none may be left that differs from ours."""
    ours = os.readlink("/proc/self/ns/net")
    left = []
    for process in psutil.process_iter():
        try:
            if os.readlink(f"/proc/{process.pid}/ns/net") != ours:
                left.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    assert not left
