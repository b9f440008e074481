"""Every answer in labNN/ loses exactly the tests it names, with the message it names; right ones keep full marks.

`make test` runs a wrong answer against the tests it must lose and two it must keep, a right one against the tests that
use what it replaces; `make test-all` runs every answer against every test.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from autograder.answers import Answer, blank, kept_tests, read_answer, run_lab, touching_tests
from autograder.sources.cells import Source, read_source

HERE = Path(__file__).parent
SOLUTIONS = HERE.parents[1] / "solutions"
LABS = sorted(SOLUTIONS.glob("lab*.py"))


@cache
def lab_of(folder: str) -> Source:
    (path,) = SOLUTIONS.glob(f"{folder}_*.py")
    return read_source(path)


def answer_files() -> list[Path]:
    return sorted(path for path in HERE.glob("lab*/*.py"))


def load(path: Path) -> tuple[Answer, Source]:
    lab = lab_of(path.parent.name)
    return read_answer(path, lab), lab


def assert_loses_what_it_names(answer: Answer, outcomes: dict) -> None:
    lost = {test: outcome.message for test, outcome in outcomes.items() if outcome.status != "passed"}
    unexpected = {test: message for test, message in lost.items() if test not in answer.loses}
    assert not unexpected, f"lost more than it should: {unexpected}"
    assert set(answer.loses) <= set(lost), f"kept {set(answer.loses) - set(lost)}"
    for test, part in answer.says.items():
        assert part in lost[test], f"{test} does not say {part!r}: {lost[test]}"


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", answer_files(), ids=name_of)
def test_answer(path: Path) -> None:
    answer, lab = load(path)
    tests = [*answer.loses, *kept_tests(answer, lab)[:2]] if answer.kind == "wrong" else touching_tests(answer, lab)
    assert_loses_what_it_names(answer, run_lab(lab, answer.replace, tests))


@pytest.mark.all
@pytest.mark.parametrize("path", answer_files(), ids=name_of)
def test_answer_against_every_test(path: Path) -> None:
    answer, lab = load(path)
    assert_loses_what_it_names(answer, run_lab(lab, answer.replace))


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_reference_scores_full_marks(path: Path) -> None:
    outcomes = run_lab(path)
    assert {test: outcome.message for test, outcome in outcomes.items() if outcome.status != "passed"} == {}
    assert sum(outcome.points for outcome in outcomes.values()) == 20


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_blank_scores_nothing(path: Path) -> None:
    lab = read_source(path)
    outcomes = run_lab(lab, blank(lab))
    assert [test for test, outcome in outcomes.items() if outcome.points] == []
