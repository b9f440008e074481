"""The class report: who is in it, what was hard, what went wrong, and what a person should look at."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder.__main__ import main
from autograder.course import Course, UserError, put_programs_on_path
from autograder.people.class_page import class_page
from autograder.people.class_report import class_report, outcome, summary
from autograder.people.misconceptions import masked, misconceptions
from autograder.people.plots import plot_scores, plot_tests
from autograder.people.roll import BY_HAND, NOT_HANDED_IN, class_of
from autograder.results import Result, TestResult, load_all, save

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader 0.9.6 meets them in every run

LAB = "lab91_made"
SOURCE = '''# %% shared="imports"
import torch

# %% solution="f"
def f(x):
    ### BEGIN SOLUTION
    return x
    ### END SOLUTION

# %% test="f_first" points=2
assert 1
# %% test="f_second" points=3
assert 1
'''
LONG = """def f(x):
    total = torch.zeros(3)
    for step in range(7):
        if step % 3 == 1:
            total = total * 2 + x[step]
        elif step > 5:
            total[1] -= x.sum().item() / (step + 1)
    return total.clamp(min=0).tolist()
"""
OTHER = """def f(x):
    rows = zip(*[iter(x)] * 3)
    return [max(0.0, sum(row) - min(row)) for row in rows if any(row) and not all(value > 9 for value in row)]
"""
HANG = """every rank waits and no wait can end.
  rank {} waits in recv #1, line 6 of cell In[14]: dist.recv(x)
Post the send first."""


def result(student: str, first: tuple[str, str], second: tuple[str, str], **more) -> Result:
    tests = [
        TestResult(name, points if status == "passed" else 0.0, points, status, message)
        for name, points, (status, message) in (("f_first", 2.0, first), ("f_second", 3.0, second))
    ]
    about = {"status": "graded", "notes": []} | more
    return Result(student=student, score=sum(test.points for test in tests), max_score=5.0, tests=tests, **about)


FINE = ("passed", "")
CLASS = [
    (result("Ann", FINE, FINE), LONG),
    (result("Bob", FINE, ("failed", HANG.format(0))), LONG.replace("total", "acc").replace("step", "i")),
    (result("Cem", ("failed", "f (n = 3): rank 1 of 4 is wrong."), ("stopped", HANG.format(3))), OTHER),
    (result("Dia", ("failed", "f (n = 7): rank 2 of 3 is wrong."), ("not run", "not run: the process ended"),
            status="partly graded", notes=["f: your code ended the process in cell 2 (f)"]), "def f(x): 1"),
    (result("Eve, <b>", FINE, FINE, flags=["forged <i>"]), "def f(x): 2"),
]  # fmt: skip


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class in the gradebook and the results, as grading leaves it, without a run."""
    root = tmp_path_factory.mktemp("graded")
    made = course_in(root)
    made.solutions.mkdir()
    made.data.mkdir()
    put_programs_on_path()
    (made.solutions / f"{LAB}.py").write_text(SOURCE)
    with Gradebook(made.gradebook_url) as gradebook:
        gradebook.add_assignment(LAB)
        gradebook.add_notebook(LAB, LAB)
        for name, points in (("f_first", 2), ("f_second", 3)):
            gradebook.add_grade_cell(name, LAB, LAB, max_score=points, cell_type="code")
        for one, code in CLASS:
            gradebook.add_student(one.student)
            gradebook.add_submission(LAB, one.student)
            for test in one.tests:
                grade = gradebook.find_grade(test.id, LAB, LAB, one.student)
                grade.auto_score, grade.needs_manual_grade = test.points, False
            gradebook.db.commit()
            save(made, LAB, one)
            hand_in(made, one.student, code)
        gradebook.add_student("Fay", last_name="Nobody")
    save(made, LAB, Result("Gus", "unreadable", 0.0, 5.0, ["The file is not valid JSON."], []))
    return root


@pytest.fixture
def course(graded: Path, tmp_path: Path) -> Course:
    """The class in a folder of its own."""
    shutil.copytree(graded, tmp_path, dirs_exist_ok=True)
    return course_in(tmp_path)


def course_in(root: Path) -> Course:
    return Course(root / "solutions", root / "labs", root / "data")


def hand_in(course: Course, student: str, code: str) -> None:
    cell = nbformat.v4.new_code_cell(code, metadata={"nbgrader": {"grade_id": "f", "solution": True}})
    target = course.data / "submitted" / student / LAB / f"{LAB}.ipynb"
    target.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), target)


def test_everyone_is_in_the_class_and_nobody_without_a_grade_has_a_zero(course: Course) -> None:
    entries = {entry.student: entry for entry in class_of(course, LAB)}
    assert {name: entry.score for name, entry in entries.items()} == {
        "Ann": 5, "Bob": 2, "Cem": 0, "Dia": 0, "Eve, <b>": 5, "Fay": None, "Gus": None,
    }  # fmt: skip
    assert entries["Fay"].status == NOT_HANDED_IN
    assert entries["Gus"].status == "unreadable"
    assert entries["Dia"].status == "partly graded"


def test_the_gradebook_has_the_last_word(course: Course) -> None:
    with Gradebook(course.gradebook_url) as gradebook:
        gradebook.find_grade("f_second", LAB, LAB, "Bob").manual_score = 1.5
        gradebook.find_submission_notebook(LAB, LAB, "Bob").late_submission_penalty = 1
        gradebook.find_grade("f_first", LAB, LAB, "Ann").needs_manual_grade = True
        gradebook.db.commit()
    entries = {entry.student: entry for entry in class_of(course, LAB)}
    assert (entries["Bob"].result.score, entries["Bob"].penalty, entries["Bob"].score) == (3.5, 1, 2.5)
    assert (entries["Ann"].status, entries["Ann"].score) == (BY_HAND, None)


def test_a_hand_in_of_an_older_release_is_in_its_labs_class(course: Course) -> None:
    older = f"{LAB}.0a1b2c"
    with Gradebook(course.gradebook_url) as gradebook:
        gradebook.add_assignment(older)
        gradebook.add_notebook(older, older)
        gradebook.add_grade_cell("f_old", older, older, max_score=4, cell_type="code")
        gradebook.add_submission(older, "Fay")
        grade = gradebook.find_grade("f_old", older, older, "Fay")
        grade.auto_score, grade.needs_manual_grade = 3, False
        gradebook.db.commit()
    tests = [TestResult("f_old", 3.0, 4.0, "failed", "an old mistake")]
    for name in (LAB, older):
        save(course, name, Result("Fay", "graded", 3.0, 4.0, [], tests))
    (fay,) = [entry for entry in class_of(course, LAB) if entry.student == "Fay"]
    assert (fay.status, fay.score, fay.max_score, fay.assignment) == ("graded", 3, 4, older)
    assert "an old mistake" in [group.example for group in class_report(course, LAB).misconceptions]


def test_a_later_run_of_nbgraders_own_command_counts(course: Course) -> None:
    path = course.data / "autograded" / "Bob" / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True)
    cell = nbformat.v4.new_code_cell("", metadata={"nbgrader": {"grade_id": "f_second", "grade": True}})
    cell.metadata["grading"] = {"status": "failed", "message": "a new message"}
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata["grading"] = {"notes": ["new note"], "flags": ["odd"], "isolation": "not isolated"}
    nbformat.write(notebook, path)
    kept = course.data / "results" / LAB / "Bob.json"
    os.utime(kept, (1, 1))
    (bob,) = [entry for entry in class_of(course, LAB) if entry.student == "Bob"]
    assert [(test.id, test.message, test.points) for test in bob.result.tests][:1] == [("f_second", "a new message", 0)]
    assert (bob.result.notes, bob.result.flags) == (["new note"], ["odd"])
    assert class_report(course, LAB).not_isolated == 1
    os.utime(path, (0, 0))
    (bob,) = [entry for entry in class_of(course, LAB) if entry.student == "Bob"]
    assert bob.result.notes == []


def test_results_outlive_the_run(course: Course) -> None:
    assert load_all(course.data, LAB)[:5] == [one for one, _ in CLASS]


def test_the_figures(course: Course) -> None:
    report = class_report(course, LAB)
    assert report.statuses == {"graded": 4, "partly graded": 1, NOT_HANDED_IN: 1, "unreadable": 1}
    assert (report.mean, report.median, report.max_score) == (2.4, 2, 5)
    assert [(test.id, test.share) for test in report.hardest] == [("f_second", 0.4), ("f_first", 0.6)]
    assert report.hardest[0].outcomes == {"passed": 2, "hung": 2, "not run": 1}
    assert report.ungraded == {"Fay": NOT_HANDED_IN, "Gus": "The file is not valid JSON."}
    assert report.flags == {"Eve, <b>": ["forged <i>"]}
    assert [(one.student, one.what, one.where) for one in report.troubles] == [
        ("Bob", "hung", ["f_second"]),
        ("Cem", "hung", ["f_second"]),
        ("Dia", "crashed", ["f"]),
    ]


def test_alike_answers_are_named_with_their_task(course: Course) -> None:
    (pair,) = class_report(course, LAB).alike
    assert (pair.first, pair.second, [cell.task for cell in pair.cells]) == ("Ann", "Bob", ["f"])


def test_the_same_mistake_counts_once_whatever_the_numbers(course: Course) -> None:
    groups = misconceptions(one for one, _ in CLASS)
    assert [(group.students, group.tests) for group in groups] == [
        (["Bob", "Cem"], ["f_second"]),
        (["Cem", "Dia"], ["f_first"]),
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ring (p = 2): ranks 0 and 1 of 2 are wrong. Rank 0: element 0 still holds the rank's own input (0 is 6).",
         "ring (p = 4): ranks 1, 2 and 3 of 4 are wrong. Rank 1: elements 1..3 of 9 still hold the rank's own input.",
         True),
        ("Rank 0 sent 3600 bytes, 1.496 times the buffer.", "Rank 12 sent 36 bytes, 3e5 times the buffer.", True),
        (HANG.format(0), HANG.format(5), True),
        (HANG.format(0), "the ranks did not finish within 10 s.\n  rank 0 is at line 1", False),
        ("gradient is divided by the number of ranks twice", "gradient is never divided by the number of ranks", False),
    ],
)  # fmt: skip
def test_messages_are_grouped_by_what_they_say(one: str, other: str, same: bool) -> None:
    results = [result(name, FINE, ("failed", message)) for name, message in (("Ann", one), ("Bob", other))]
    assert (len(misconceptions(results)) == 1) is same, (masked(one), masked(other))


def test_what_was_not_begun_is_no_misconception() -> None:
    blank = result("Ann", ("failed", "not answered yet: a cell that this needs"), ("not run", "not run: the process"))
    assert misconceptions([blank]) == []
    assert [outcome(test) for test in blank.tests] == ["not answered", "not run"]


def test_the_page_shows_it_all_and_runs_nothing(course: Course) -> None:
    text = class_page(class_report(course, LAB))
    assert text.count("data:image/png;base64,") == 2
    assert "Eve, &lt;b&gt;" in text and "<b>Eve" not in text and "forged &lt;i&gt;" in text
    for part in ("f_second", "Ann and Bob", "1 not run", "The file is not valid JSON."):
        assert part in text
    assert "<script" not in text


def test_the_plots_show_the_figures(course: Course) -> None:
    from matplotlib.figure import Figure

    report = class_report(course, LAB)
    scores = plot_scores(list(report.scores.values()), report.max_score, Figure().add_subplot())
    assert [bar.get_height() for bar in scores.patches] == [2, 0, 1, 0, 0, 2]
    tests = plot_tests(report.hardest, Figure().add_subplot())
    assert [label.get_text() for label in tests.get_yticklabels()] == ["f_second", "f_first"]
    assert [bar.get_width() for bar in tests.patches[:2]] == [2, 3]


def test_the_command(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(Course, "default", classmethod(lambda cls: course))
    page, record = tmp_path / "out" / "report.html", tmp_path / "out" / "report.json"
    assert main(["report", "lab91", "--html", str(page), "--json", str(record)]) == 0
    out = capsys.readouterr().out
    assert "Ann and Bob: f 100%" in out and "Eve, <b>: forged <i>" in out and "mean 2.4, median 2 of 5" in out
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    told = json.loads(record.read_text(encoding="utf-8"))
    assert told["scores"]["Bob"] == 2 and "answers" not in told and told["alike"][0]["first"] == "Ann"


def test_a_lab_that_nobody_graded_is_said_in_one_sentence(course: Course, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not know lab92_none"):
        class_of(course, "lab92_none")
    with pytest.raises(UserError, match="There is no gradebook"):
        class_of(course.with_data(tmp_path / "empty"), LAB)


def test_a_class_without_a_single_grade_has_a_report(course: Course) -> None:
    with Gradebook(course.gradebook_url) as gradebook:
        for one, _ in CLASS:
            gradebook.remove_submission(LAB, one.student)
    report = class_report(course, LAB)
    assert report.scores == {} and "Without a grade" in class_page(report)
    assert "6 not handed in" in summary(report)
