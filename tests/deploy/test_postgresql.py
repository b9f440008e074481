"""A gradebook on PostgreSQL: the same marks as SQLite's, for several graders at once, and moved there and back.

The submissions run once; all later gradings take the kept runs, so what is compared is the gradebook's work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder import grade as grading
from autograder import moving
from autograder.__main__ import main
from autograder.course import REPO, Course, UserError, nbgrader_config
from autograder.feedback import write_feedback
from autograder.grade import grade
from autograder.gradebook import alone, named
from autograder.moving import TABLES, copy
from autograder.people.export import FORMATS, export
from autograder.people.roll import class_of
from autograder.release import release
from autograder.results import load_all
from autograder.sandbox import why_not
from tests.deploy.a_server import Server

pytestmark = [
    pytest.mark.deploy, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
    pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why"),
]  # fmt: skip
TOY, OTHER = "lab90_toy", "lab89_other"
ANSWERS = {
    "O'Neil, Ann": "def answer_steps(p):\n    return 2 * (p - 1)",
    "bo": "def answer_steps(p):\n    return 5",
    "李小龙": "def answer_steps(p):\n    return 'six'",
    "zoë": "raise NotImplementedError",
}
RULES = 'time_zone = "Asia/Shanghai"\n[late]\nmethod = "percent_per_day"\npercent = 10\n[deadlines]\n'
RULES += "".join(f"{lab} = 2026-03-02T23:59:00\n" for lab in (TOY, OTHER))
GRADER = """
import sys
from pathlib import Path
from autograder.course import Course
from autograder.grade import grade
solutions, releases, data, lab, place = sys.argv[1:]
grade(Course(Path(solutions), Path(releases), Path(data)), lab, Path(place), jobs=1)
"""


@dataclass
class Klass:
    """A class of the toy lab with one late hand-in and one that cannot be read, graded into SQLite."""

    root: Path
    course: Course
    server: Server

    def another(self, name: str, url: str = "") -> Course:
        """The same course with another course-data folder: the kept runs, and a gradebook of its own."""
        made = Course(self.course.solutions, self.root / name / "labs", self.root / name / "data")
        made.data.mkdir(parents=True)
        shutil.copytree(self.course.data / "runs", made.data / "runs")
        (made.data / "course.toml").write_text((f'gradebook = "{url}"\n' if url else "") + RULES, encoding="utf-8")
        return made


@pytest.fixture(scope="module")
def klass(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Klass]:
    root = tmp_path_factory.mktemp("postgresql")
    shutil.copytree(REPO / "tests" / "toy_lab" / "solutions", root / "solutions")
    shutil.copy(root / "solutions" / f"{TOY}.py", root / "solutions" / f"{OTHER}.py")
    with Server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(server.passfile))
        (root / "first").mkdir()
        course = Course(root / "solutions", root / "labs", root / "first")
        (course.data / "course.toml").write_text(RULES, encoding="utf-8")
        for lab in (TOY, OTHER):
            release(course, lab)
        hand_in(course, root)
        grade(course, TOY, root / TOY, jobs=2)
        yield Klass(root, course, server)


def hand_in(course: Course, root: Path) -> None:
    """Two labs' hand-ins, and those of the first once more in two halves."""
    for lab in (TOY, OTHER):
        reference = {cell.id: cell.source for cell in _read(course.solutions / lab / f"{lab}.ipynb").cells}
        for number, (student, answer) in enumerate(ANSWERS.items()):
            notebook = _read(course.releases / lab / f"{lab}.ipynb")
            for cell in notebook.cells:
                if cell.id in ("pass_on", "answer_steps"):
                    cell.source = answer if cell.id == "answer_steps" else reference[cell.id]
            for place in (root / lab, root / f"{lab}.{number % 2}"):
                folder = place / student / lab
                folder.mkdir(parents=True)
                nbformat.write(notebook, folder / f"{lab}.ipynb")
                (folder / "timestamp.txt").write_text(f"2026-03-0{2 + number} 10:00:00 UTC")
        for place in (root / lab, root / f"{lab}.1"):
            (place / "torn" / lab).mkdir(parents=True)
            (place / "torn" / lab / f"{lab}.ipynb").write_text('{"cells": [', encoding="utf-8")


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def left(course: Course, lab: str = TOY) -> dict[str, Any]:
    """All that people see of a graded class: the exports' rows, results, and feedback pages."""
    entries = class_of(course, lab)
    pages = {path.parent.parent.name: path.read_text(encoding="utf-8")
             for path in course.data.glob(f"feedback/*/{lab}/{lab}.html")}  # fmt: skip
    rows = {form: export(entries, lab, form).rows for form in FORMATS}
    return {"rows": rows, "results": [r.as_record() for r in load_all(course.data, lab)], "pages": pages}


def test_the_class_is_graded_as_sqlite_has_it(klass: Klass) -> None:
    course = klass.another("alone", klass.server.database())
    grade(course, TOY, klass.root / TOY, jobs=1)
    assert not (course.data / "gradebook.db").exists()
    ours, theirs = left(course), left(klass.course)
    for form in FORMATS:
        for ours_row, their_row in zip(ours["rows"][form], theirs["rows"][form], strict=True):
            assert ours_row == their_row
    assert ours == theirs
    scores = {row[3]: row[9] for row in ours["rows"]["gradebook"][1:]}
    assert scores == {"O'Neil, Ann": 20.0, "bo": 12.6, "torn": "", "zoë": 7.0, "李小龙": 8.0}, "late days cost 10 %"

    kept = course.data / "scored" / TOY / "bo.student.json"
    before = kept.stat().st_mtime_ns
    grade(course, TOY, klass.root / TOY, jobs=1)
    assert kept.stat().st_mtime_ns == before, "who was graded from the same before is not graded again"


def test_formgraders_own_code_reads_it_and_marks_by_hand_count(klass: Klass) -> None:
    from nbgrader.apps.api import NbGraderAPI

    course = klass.another("formgrader", klass.server.database())
    grade(course, TOY, klass.root / TOY, jobs=1)
    with Gradebook(course.gradebook_url) as book:
        mark = book.find_grade("steps_value", TOY, TOY, "bo")
        mark.manual_score, mark.extra_credit = 4.5, 0.25
        book.find_comment("answer_steps", TOY, TOY, "bo").manual_comment = "fast richtig – 不错"
        book.db.commit()
    api = NbGraderAPI(config=nbgrader_config(course))
    seen = {one["student"]: (one["score"], one["max_score"]) for one in api.get_submissions(TOY) if one["autograded"]}
    assert seen["bo"] == (18.75, 20.0)
    assert {one["id"] for one in api.get_students()} == set(ANSWERS)
    assert api.get_assignment(TOY)["num_submissions"] == 4
    assert {entry.student: entry.score for entry in class_of(course, TOY)}["bo"] == pytest.approx(18.75 - 1.4)
    assert "fast richtig – 不错" in write_feedback(course, TOY, "bo").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_graders_at_once_lose_nothing(kind: str, klass: Klass) -> None:
    """Two with half a class each and one with another lab of the same people, all on an empty gradebook.

    Its tables, the labs and the students are made by whichever comes first. SQLite's file bears it on one machine.
    """
    course = klass.another(f"{kind}-at-once", klass.server.database() if kind == "postgresql" else "")
    graders = [
        subprocess.Popen(
            [sys.executable, "-c", GRADER, str(course.solutions), str(course.releases), str(course.data), lab,
             str(klass.root / place)], cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for lab, place in ((TOY, f"{TOY}.0"), (TOY, f"{TOY}.1"), (OTHER, OTHER))
    ]  # fmt: skip
    try:
        for grader in graders:
            said, _ = grader.communicate(timeout=250)
            assert grader.returncode == 0, said[-2000:]
    finally:
        for grader in graders:
            grader.kill()
            grader.wait()
    assert left(course) == left(klass.course)
    rows = export(class_of(course, OTHER), OTHER, "gradebook").rows[1:]
    assert [row[3:10] for row in rows] == [row[3:10] for row in left(course)["rows"]["gradebook"][1:]]


def test_a_server_that_is_lost_in_the_middle_costs_nothing(klass: Klass, monkeypatch: pytest.MonkeyPatch) -> None:
    course, calls = klass.another("lost", klass.server.database()), []

    def cut(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            klass.server.stop()
        real(*args)

    real = grading.set_moment
    monkeypatch.setattr(grading, "set_moment", cut)
    try:
        with pytest.raises(UserError, match=r"does not answer \(.*what was graded is kept"):
            grade(course, TOY, klass.root / TOY, jobs=1)
    finally:
        klass.server.start()
    monkeypatch.undo()
    os.environ["PGPASSFILE"] = str(klass.server.passfile)
    assert len(list((course.data / "scored" / TOY).glob("*.student.json"))) == 2, "the torn one, and the first"
    grade(course, TOY, klass.root / TOY, jobs=1)
    assert left(course) == left(klass.course)


def test_what_keeps_the_server_from_answering_is_said_in_one_sentence(
    klass: Klass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = klass.server.database()
    away = url.replace(str(klass.server.port), "1")
    secret = url.replace("grader@", "grader:s3cret@")
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    for text, passfile, says in (
        (url, "/nonexistent", "no password supplied"),
        (away, str(klass.server.passfile), "Connection refused"),
        (url + "_none", str(klass.server.passfile), 'database "class'),
        (secret, str(klass.server.passfile), "holds a password: leave it out, and put it into ~/.pgpass"),
        ("mysql://grader@db/llm", "", "give postgresql+psycopg://USER@HOST/DATABASE"),
        ("7", "", "give postgresql+psycopg://USER@HOST/DATABASE"),
    ):
        (tmp_path / "course.toml").write_text(f'gradebook = "{text}"\n')
        monkeypatch.setenv("PGPASSFILE", passfile)
        assert main(["report", "lab01"]) == 2
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == 1 and "Traceback" not in said and "s3cret" not in said


def test_a_gradebook_moves_to_the_server_and_back(
    klass: Klass, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, home = klass.server.database(), klass.course.data / "gradebook.db"
    assert main(["gradebook", "copy", str(home), url]) == 0
    said = capsys.readouterr().out
    assert "4 student" in said and "4 submitted_assignment" in said and f'gradebook = "{url}"' in said
    moved = klass.another("moved", url)
    for folder in ("results", "autograded", "feedback"):
        shutil.copytree(klass.course.data / folder, moved.data / folder)
    assert left(moved) == left(klass.course)

    assert main(["gradebook", "copy", str(home), url]) == 2
    assert "holds a class already" in capsys.readouterr().err
    assert main(["gradebook", "copy", url, str(tmp_path / "back.db")]) == 0
    back, there = contents(f"sqlite:///{tmp_path / 'back.db'}"), contents(klass.course.gradebook_url)
    assert set(back.pop("course")) >= set(there.pop("course"))
    assert back == there and len(there["grade"]) == 16
    assert main(["gradebook", "copy", str(tmp_path / "none.db"), url]) == 2
    assert "There is no gradebook" in capsys.readouterr().err


def contents(url: str) -> dict[str, list[str]]:
    with Gradebook(url) as book:
        return {table.name: sorted(map(repr, book.db.execute(table.select()))) for table in TABLES}


def test_a_copy_that_is_not_whole_is_none(klass: Klass, monkeypatch: pytest.MonkeyPatch) -> None:
    url = klass.server.database()
    real, counted = moving._rows, []

    def short(here: Any, table: Any) -> list[dict[str, Any]]:
        counted.append(table.name)
        return real(here, table)[1:] if table.name == "grade" and counted.count("grade") == 2 else real(here, table)

    monkeypatch.setattr("autograder.moving._rows", short)
    with pytest.raises(UserError, match=r"grade did not arrive in .* nothing was copied"):
        copy(klass.course.gradebook_url, url)
    assert contents(url)["student"] == [] and contents(url)["grade"] == []


def test_the_lock_keeps_a_second_grader_out_and_ends_with_its_holder(klass: Klass) -> None:
    url = klass.another("lock", klass.server.database()).gradebook_url
    code = f"import time; from autograder.gradebook import alone\nwith alone({url!r}): print('in', flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", code + "time.sleep(60)"], cwd=REPO, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "in\n"
            with pytest.raises(UserError, match=r"Another grader has kept the gradebook for 0\.3 s"), alone(url, 0.3):
                pass
        finally:
            holder.kill()
    until = time.monotonic() + 20
    with alone(url, 20):
        assert time.monotonic() < until


def test_a_hub_enters_its_students_on_the_server(klass: Klass, tmp_path: Path) -> None:
    """As `hub init` does: the password is the grader's, in the grader's own home."""
    from autograder.hub.classfile import Person
    from autograder.hub.gradebook import enter
    from autograder.hub.layout import Layout

    layout, url = Layout(tmp_path), klass.server.database()
    (layout.data / "home").mkdir(parents=True)
    (tmp_path / "class.yaml").write_text("course: llm\nusers: one\n")
    (layout.data / "course.toml").write_text(f'gradebook = "{url}"\n')
    with pytest.raises(UserError, match=r"did not take the students: .*no password supplied.*pgpass"):
        enter(layout, [Person("ada")])
    shutil.copy(klass.server.passfile, layout.data / "home" / ".pgpass")
    enter(layout, [Person("ada", first="Ada", last="Lovelace", email="ada@example.org")])
    with Gradebook(layout.course.gradebook_url) as book:
        assert [(one.id, one.first_name) for one in book.students] == [("ada", "Ada")]
    assert named(layout.course.gradebook_url) == url and json.dumps(url)
