"""A class of odd submissions of the toy lab, graded: each gets what it deserves, and is told why."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import nbformat
import psutil
import pytest
from nbgrader.api import Gradebook

from autograder.course import Course, UserError
from autograder.grade import Result, grade
from autograder.report import as_json, reasons, table
from autograder.sandbox import SandboxRefused

TOY = "lab90_toy"

RIGHT = """import warnings
def pass_on(x):
    warnings.warn("careful")
    p, me = dist.get_world_size(), dist.get_rank()
    got = torch.empty_like(x)
    for work in [dist.isend(x, (me + 1) % p), dist.irecv(got, (me - 1) % p)]:
        work.wait()
    return got
"""
NOISY = "import sys, os\nprint('to stderr', file=sys.stderr)\nos.system('echo a child speaks >&2')\n"


def cell_of(notebook, name: str):
    return next(cell for cell in notebook.cells if cell.id == name)


def submissions(course: Course, answered, folder: Path) -> None:
    """Write the class: one notebook for each student, named after what is special about it."""
    write = {
        "Right, but noisy": answered(pass_on=RIGHT + NOISY),
        "Nothing": nbformat.read(course.releases / TOY / f"{TOY}.ipynb", as_version=4),
        "Right at two": answered(
            pass_on=RIGHT.replace("(me + 1)", "(1 - me)").replace("(me - 1)", "(1 - me)")
        ),
        "Ends the process": answered(answer_steps="import os\nos._exit(0)"),
        "Detaches a child": answered(
            pass_on=RIGHT + 'import subprocess\nsubprocess.Popen(["sleep", "612"], start_new_session=True)'
        ),
        "Tests edited": answered(answer_steps="def answer_steps(p):\n    return 5"),
        "A value last": answered(answer_steps="def answer_steps(p):\n    return 6\n3.0"),
    }
    edited = write["Tests edited"]
    cell_of(edited, "steps_value").source = "pass"
    cell_of(edited, "steps_value").metadata["nbgrader"]["points"] = 60
    edited.cells.remove(cell_of(edited, "steps_form"))
    pasted = copy.deepcopy(cell_of(edited, "pass_on"))
    pasted.id = "pasted"
    edited.cells.append(pasted)
    for student, notebook in write.items():
        nbformat.write(notebook, folder / f"{student}.ipynb")
    (folder / "Truncated.ipynb").write_text('{"cells": [', encoding="utf-8")


@pytest.fixture(scope="module")
def graded(toy_course: Course, answered, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("handed_in")
    submissions(toy_course, answered, folder)
    return {result.student: result for result in grade(toy_course, TOY, folder)}


def marks(result: Result) -> dict[str, float]:
    return {test.id: test.points for test in result.tests}


def message(result: Result, test: str) -> str:
    return next(one.message for one in result.tests if one.id == test)


FULL = {"pass_on_two": 5, "pass_on_keeps": 5, "steps_form": 4, "steps_value": 6}


def test_stderr_never_scores(graded: dict[str, Result]) -> None:
    assert marks(graded["Right, but noisy"]) == FULL
    assert graded["Right, but noisy"].status == "graded"


def test_a_blank_one_gets_nothing(graded: dict[str, Result]) -> None:
    assert graded["Nothing"].score == 0
    assert all("not answered yet" in test.message for test in graded["Nothing"].tests)


def test_the_hidden_part_decides_and_is_not_shown(graded: dict[str, Result]) -> None:
    result = graded["Right at two"]
    assert marks(result) == FULL | {"pass_on_two": 0}
    assert result.feedback is not None
    for text in (message(result, "pass_on_two"), result.feedback.read_text(encoding="utf-8")):
        assert "secret_run" not in text
        assert "[2.5, 0.5, 1.5]" not in text


def test_the_end_of_the_process_costs_the_cell_alone_and_is_named(graded: dict[str, Result]) -> None:
    result = graded["Ends the process"]
    assert result.status == "graded"
    assert marks(result) == FULL | {"steps_form": 0, "steps_value": 0}
    assert "your code ended the process in cell" in message(result, "steps_value")
    assert "(answer_steps)" in message(result, "steps_value")


def test_locked_cells_and_points_are_restored(graded: dict[str, Result]) -> None:
    result = graded["Tests edited"]
    assert marks(result) == FULL | {"steps_value": 0}
    assert result.max_score == 20
    assert "5 messages" in message(result, "steps_value")
    assert any("steps_form was missing" in note for note in result.notes)
    assert any("pass_on was there 2 times" in note for note in result.notes)


def test_a_value_of_a_students_cell_is_no_credit(graded: dict[str, Result]) -> None:
    assert marks(graded["A value last"]) == FULL


def test_an_unreadable_one_is_no_zero_and_stops_nobody(toy_course: Course, graded: dict[str, Result]) -> None:
    result = graded["Truncated"]
    assert (result.status, result.tests) == ("unreadable", [])
    assert "not valid JSON" in result.notes[0]
    with Gradebook(toy_course.gradebook_url) as gradebook:
        recorded = {submission.student_id for submission in gradebook.assignment_submissions(TOY)}
    assert recorded == set(graded) - {"Truncated"}


def test_the_gradebook_has_the_same_marks(toy_course: Course, graded: dict[str, Result]) -> None:
    with Gradebook(toy_course.gradebook_url) as gradebook:
        for submission in gradebook.assignment_submissions(TOY):
            assert submission.score == graded[submission.student_id].score
            assert not submission.needs_manual_grade


def test_nothing_of_the_class_runs_or_lies_about_afterwards(graded: dict[str, Result]) -> None:
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "sleep 612" in command]
    assert graded["Detaches a child"].score == 20


def test_feedback_says_why_in_place_of_the_test(graded: dict[str, Result]) -> None:
    text = graded["Tests edited"].feedback.read_text(encoding="utf-8")
    assert "5 messages: count both halves of the ring" in text
    assert "HIDDEN" not in text


def test_the_report_as_json_and_table(graded: dict[str, Result]) -> None:
    results = list(graded.values())
    report = json.loads(as_json(TOY, results))
    assert set(report) == {"lab", "environment", "submissions"}
    assert {"python", "torch", "nbgrader", "platform", "course", "commit"} == set(report["environment"])
    for submission in report["submissions"]:
        keys = {"student", "platform", "status", "score", "max_score", "notes", "tests", "flags", "isolation"}
        assert set(submission) == keys
        for test in submission["tests"]:
            assert set(test) == {"id", "points", "max_points", "status", "message"}
    lines = table(results).splitlines()
    assert any(
        line.split() == ["Right,", "but", "noisy", "20", "/", "20", "5", "5", "4", "6"] for line in lines
    )
    assert any(
        line.split() == ["Ends", "the", "process", "10", "/", "20", "5", "5", "0", "0"] for line in lines
    )
    assert any(line.startswith("Truncated") and line.endswith("unreadable") for line in lines)
    assert "steps_value: 5 messages" in reasons(results)


def test_grading_again_changes_nothing(
    toy_course: Course, answered, graded: dict[str, Result], tmp_path: Path
) -> None:
    nbformat.write(answered(), tmp_path / "Right, but noisy.ipynb")
    (again,) = grade(toy_course, TOY, tmp_path)
    assert marks(again) == FULL
    with Gradebook(toy_course.gradebook_url) as gradebook:
        assert len(gradebook.assignment_submissions(TOY)) == len(graded) - 1


def test_a_grader_that_is_interrupted_stops(
    toy_course: Course, answered, tmp_path: Path, monkeypatch
) -> None:
    """nbgrader's converters swallow KeyboardInterrupt; the batch must not go on to the next student."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autograder.worker.run_cells", interrupted)
    nbformat.write(answered(pass_on=RIGHT + "# not run before\n"), tmp_path / "Interrupted.ipynb")
    with pytest.raises(KeyboardInterrupt):
        grade(toy_course, TOY, tmp_path)


def test_a_sandbox_that_does_not_start_costs_no_mark(
    toy_course: Course, answered, tmp_path: Path, monkeypatch
) -> None:
    def failing(*_: object) -> None:
        raise SandboxRefused("bubblewrap was refused")

    monkeypatch.setattr("autograder.worker.run_cells", failing)
    nbformat.write(answered(pass_on=RIGHT + "# nor was this\n"), tmp_path / "Unlucky.ipynb")
    (result,) = grade(toy_course, TOY, tmp_path, jobs=1)
    assert result.status == "unreadable"
    assert "bubblewrap was refused" in result.notes[0]


def test_a_class_is_refused_without_a_sandbox(toy_course: Course, answered, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("autograder.grade.why_not", lambda kind: "" if kind == "none" else "no bwrap: do X.")
    nbformat.write(answered(), tmp_path / "Anybody.ipynb")
    with pytest.raises(UserError, match="no bwrap: do X"):
        grade(toy_course, TOY, tmp_path)
    (result,) = grade(replace(toy_course, sandbox="none"), TOY, tmp_path, jobs=1)
    assert result.score == 20
