"""Feedback pages: what they show, what they never show, and that no text of a student's runs in the browser."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from autograder.course import REPO, Course
from autograder.execute import ExecuteSubmission, record
from autograder.feedback import write_feedback
from autograder.grade import grade_one
from autograder.intake import collect
from autograder.people.page import headings, page_of
from autograder.people.pages import render
from autograder.release import release
from autograder.results import Result, TestResult
from utils.selfcheck.notebook import Outcome, kind_of, name_of

TOY = "lab90_toy"
EVIL = '<script>alert("1")</script> & "quoted" <b>'
HIDDEN_LINE = (
    "assert [value.item() for value in secret_run.values] == [2.5, 0.5, 1.5], "
    '"at 3 ranks a value took the wrong way"'
)
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"rest").decode()


class Tags(HTMLParser):
    """Notes the tags of a page and the addresses it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_cell(name: str, points: int, score: float, source: str = "pass", **grading: Any) -> Any:
    meta = {"grade": True, "grade_id": name, "points": points, "solution": False, "locked": True, "schema_version": 3}
    return new_code_cell(source, metadata={"nbgrader": {**meta, "score": score}, "grading": grading})


test_cell.__test__ = False  # a maker of cells


def own_cell(source: str, name: str = "", number: int = 1, outputs: tuple = (), message: str = "") -> Any:
    meta: dict[str, Any] = {"grading": {"status": "passed", "message": message}}
    if name:
        meta["nbgrader"] = {"grade": False, "grade_id": name, "solution": True, "locked": False}
    return new_code_cell(source, metadata=meta, execution_count=number, outputs=list(outputs))


def notebook(*cells: Any, notes: tuple[str, ...] = ()) -> Any:
    made = new_notebook(cells=[new_markdown_cell("# A lab"), new_markdown_cell("## `ring`\ntext"), *cells])
    made.metadata["grading"] = {"notes": list(notes)}
    return made


def html_of(made: Any, student: str = "Ann", **extra: Any) -> str:
    return render("feedback.html.j2", page=page_of(made, "lab01", student, **extra))


def test_a_page_has_points_messages_reports_and_the_students_cells() -> None:
    hang = "every rank waits and no wait can end.\n  rank 0 waits in recv #1, line 6 of cell In[7]: dist.recv(x)"
    text = html_of(
        notebook(
            own_cell("def ring(x):\n    return x", "ring", 7, [new_output("stream", text="printed\n")]),
            test_cell("ring_sum", 2, 2, status="passed", message=""),
            test_cell("ring_late", 3, 0, status="failed", message=hang),
        )
    )
    assert "A lab" in text and "ring_sum" in text and ">2 / 2<" in text and ">0 / 3<" in text
    assert 'class="score">2 <small>of 5' in text
    assert '<a href="#in-7">In[7]</a>: dist.recv(x)' in text
    assert 'id="in-7"' in text
    assert "printed" in text


def test_the_text_of_a_test_is_not_read_at_all() -> None:
    cell = test_cell("ring_sum", 2, 0, "visible_half = 1\n### BEGIN HIDDEN TESTS\nsecret = 2\n### END HIDDEN TESTS",
                     status="failed", message="wrong")  # fmt: skip
    cell.outputs = [new_output("stream", text="an output of the test")]
    text = html_of(notebook(cell))
    for part in ("visible_half", "secret", "HIDDEN", "an output of the test"):
        assert part not in text


def test_what_students_write_is_text_and_nothing_else() -> None:
    html = new_output("display_data", data={"text/html": EVIL, "text/plain": "plain " + EVIL})
    svg = new_output("display_data", data={"image/svg+xml": f"<svg>{EVIL}</svg>", "image/png": "no picture <b>"})
    made = notebook(
        own_cell(EVIL, "ring", 3, [html, svg, new_output("stream", text=EVIL)], message=EVIL),
        test_cell("ring_sum", 2, 0, status="failed", message=f"{EVIL}\n{EVIL}"),
        notes=(EVIL,),
    )
    made.cells.insert(2, new_markdown_cell(f"## {EVIL}"))
    text = html_of(made, student=f"O'Neil {EVIL}")
    page = Tags(text)
    assert "script" not in page.tags and "svg" not in page.tags
    assert not {name for name in page.attributes if name.startswith("on")}
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    assert "&lt;script&gt;" in text


def test_a_page_needs_nothing_beside_itself() -> None:
    picture = new_output("display_data", data={"image/png": PICTURE, "text/plain": "<Figure>"})
    text = html_of(
        notebook(
            own_cell("plot()", "ring", 3, [picture]), test_cell("a", 1, 0, status="failed", message="no", png=PICTURE)
        )
    )
    page = Tags(text)
    assert page.tags.count("img") == 2
    assert "link" not in page.tags
    assert {address for address in page.addresses if address.startswith("data:")} == {
        f"data:image/png;base64,{PICTURE}"
    }
    assert "<Figure>" not in text and "@import" not in text


def test_long_outputs_keep_their_ends_and_equal_reports_are_told_once() -> None:
    report = "every rank waits.\n" + "  rank 0 waits\n" * 3
    made = notebook(
        own_cell("x", "ring", 1, [new_output("stream", text="first" + "." * 50_000 + "last")]),
        *(test_cell(name, 1, 0, status="failed", message=report) for name in ("a", "b")),
    )
    text = html_of(made)
    assert len(text) < 30_000
    assert "first" in text and "last" in text and "characters left out" in text
    assert text.count("rank 0 waits") == 3
    assert "The report is that of a." in text


def test_names_of_any_script_and_graders_comments() -> None:
    cell = test_cell("ring_sum", 2, 1, status="failed", message="no")
    cell.metadata["nbgrader"]["comment"] = "half a point for the idea: 很好"
    text = html_of(notebook(cell), student="李小龙")
    assert "李小龙" in text and "half a point for the idea: 很好" in text


def test_a_record_of_the_same_run_adds_the_notes_of_intake() -> None:
    made = notebook(test_cell("a", 1, 0, status="failed", message="no"), notes=("from the run",))
    test = TestResult("a", 0, 1, "failed", "")
    record = Result("Ann", "graded", 0, 1, ["cell a was missing", "from the run"], [test])
    assert page_of(made, "lab01", "Ann", record).notes == ["cell a was missing", "from the run"]
    record.tests[0].status = "passed"  # of an earlier run
    assert page_of(made, "lab01", "Ann", record).notes == ["from the run"]


def test_a_late_penalty_is_taken_off_and_said() -> None:
    text = html_of(notebook(test_cell("a", 5, 5, status="passed", message="")), penalty=1.5)
    assert 'class="score">3.5 <small>of 5' in text
    assert "1.5 points taken off for handing in late" in text


def test_headings_are_those_of_the_text() -> None:
    assert headings("intro\n# Lab\n```\n# no heading\n```\n### `f` and **g** ##") == ["Lab", "f and g"]


def ran(cells: list[Any]) -> list[Outcome]:
    """What a run would have found, without one."""
    outcomes = []
    for number, (index, cell) in enumerate(((i, c) for i, c in enumerate(cells) if c.cell_type == "code"), 1):
        kind, name = kind_of(cell), name_of(cell, number)
        wrong = name == "pass_on_two"
        message = f"got 4\n    {HIDDEN_LINE}" if wrong else ""
        points = float(cell.metadata.get("nbgrader", {}).get("points") or 0) if kind == "test" else 0.0
        outcomes.append(Outcome(index, number, name, kind, "failed" if wrong else "passed", message, points))
    return outcomes


@pytest.fixture
def graded(toy_course: Course, answered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Course, Result]:
    """A course of its own with one graded submission, and one that cannot be read; no cell was run."""

    def preprocess(self: ExecuteSubmission, nb: Any, resources: dict) -> tuple[Any, dict]:
        for outcome in ran(nb.cells):
            record(nb.cells[outcome.index], outcome)
        nb.metadata["grading"] = {"notes": ["ran"]}
        return nb, resources

    monkeypatch.setattr(ExecuteSubmission, "preprocess", preprocess)
    course = Course(toy_course.solutions, tmp_path / "labs", tmp_path / "data")
    release(course, TOY)
    (tmp_path / "inbox").mkdir()
    nbformat.write(answered(), tmp_path / "inbox" / "Ann.ipynb")
    (tmp_path / "inbox" / "Bob.ipynb").write_text("{")
    results = [grade_one(course, TOY, submission) for submission in collect(tmp_path / "inbox", TOY, course)]
    return course, results[0]


def test_nbgraders_own_command_writes_the_same_page(graded: tuple[Course, Result], tmp_path: Path) -> None:
    course, result = graded
    ours = result.feedback.read_text(encoding="utf-8")
    assert "got 4" in ours and "pass_on_two" in ours and "[2.5, 0.5, 1.5]" not in ours
    shutil.rmtree(course.data / "feedback" / "Ann")
    folders = f"Path({str(course.solutions)!r}), Path({str(course.releases)!r}), Path({str(course.data)!r})"
    (tmp_path / "nbgrader_config.py").write_text(
        "from pathlib import Path\nfrom autograder.course import Course, nbgrader_config\n"
        f"get_config().merge(nbgrader_config(Course({folders})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_feedback", TOY, "--student", "Ann"],
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert result.feedback.read_text(encoding="utf-8") == ours


def test_marks_by_hand_show_after_the_page_is_made_again(graded: tuple[Course, Result]) -> None:
    from nbgrader.api import Gradebook

    course, result = graded
    assert 'class="score">15 ' in result.feedback.read_text(encoding="utf-8")
    with Gradebook(course.gradebook_url) as gradebook:
        mark = gradebook.find_grade("pass_on_two", TOY, TOY, "Ann")
        mark.manual_score = 4
        gradebook.db.commit()
    assert 'class="score">19 ' in write_feedback(course, TOY, "Ann").read_text(encoding="utf-8")


def test_an_unreadable_one_gets_a_page_that_says_why(graded: tuple[Course, Result]) -> None:
    course, _ = graded
    text = (course.data / "feedback" / "Bob" / TOY / f"{TOY}.html").read_text(encoding="utf-8")
    assert "no grade yet" in text and "not valid JSON" in text and "of 20 points" not in text
