"""CSV for ourselves, Canvas and Moodle: quoted, with a status, and nobody without a grade has a zero."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.__main__ import main
from autograder.course import REPO, Course, UserError, put_programs_on_path
from autograder.people.export import export, write
from autograder.people.roll import NOT_HANDED_IN, Entry
from autograder.results import Result, TestResult, save

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader 0.9.6 meets them in every run

LAB = "lab91_made"
COMMA = 'Smith, "Jo" Ann'


def entry(student: str, score: float | None, status: str = "graded", penalty: float = 0.0, **names: str) -> Entry:
    result = None if status == NOT_HANDED_IN else Result(student, status, score or 0.0, 20.0, [], [])
    if result and score is not None:
        result.tests = [TestResult("first", score, 20.0, "passed", "")]
    return Entry(student, status, result, 20.0, penalty, **names)


CLASS = [
    entry("ada", 17.5, penalty=1.5, first_name="Ada", last_name="Lovelace", email="ada@x.edu"),
    entry(COMMA, 20.0),
    entry("李小龙", 0.0),
    entry("=1+1", 3.0),
    entry("gus", None, "unreadable"),
    entry("fay", None, NOT_HANDED_IN),
]


def table(form: str, tmp_path: Path, **more) -> list[dict[str, str]]:
    """The rows as any reader of CSV sees them, each held to the header's length."""
    path = tmp_path / "out.csv"
    write(export(CLASS, LAB, form, **more).rows, path)
    header, *rows = list(csv.reader(path.open(encoding="utf-8", newline="")))
    assert all(len(row) == len(header) for row in rows)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_the_gradebook(tmp_path: Path) -> None:
    rows = {row["student_id"]: row for row in table("gradebook", tmp_path)}
    ada = rows["ada"]
    assert (ada["raw_score"], ada["late_submission_penalty"], ada["score"]) == ("17.5", "1.5", "16.0")
    assert rows[COMMA]["score"] == "20.0" and rows[COMMA]["first"] == "20.0"
    assert rows["李小龙"]["score"] == "0.0"
    for name, status in (("gus", "unreadable"), ("fay", "not handed in")):
        assert [rows[name][column] for column in ("score", "raw_score", "first", "status")] == ["", "", "", status]
    assert "'=1+1" in rows, "a name is no formula"


def test_canvas(tmp_path: Path) -> None:
    points, *rows = table("canvas", tmp_path)
    assert list(points) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", LAB]
    assert (points["Student"].strip(), points[LAB]) == ("Points Possible", "20")
    assert {row["SIS Login ID"]: row[LAB] for row in rows} == {
        "ada": "16", COMMA: "20", "李小龙": "0", "'=1+1": "3", "gus": "", "fay": "",
    }  # fmt: skip
    assert rows[0]["Student"] == "Lovelace, Ada"


def test_moodle(tmp_path: Path) -> None:
    rows = {row["Username"]: row for row in table("moodle", tmp_path)}
    assert (rows["ada"]["Grade"], rows["ada"]["Email address"], rows["ada"]["Status"]) == ("16", "ada@x.edu", "graded")
    assert (rows["gus"]["Grade"], rows["gus"]["Status"]) == ("", "unreadable")


def of_platform(student: str, platform: str, score: float) -> Entry:
    made = entry(student, score)
    made.platform = platform
    return made


def test_the_platforms_number_is_exported_and_finds_the_row(tmp_path: Path) -> None:
    class_ = [of_platform("Jo", "canvas 101", 7.0), of_platform("Jo (canvas 102)", "canvas 102", 9.0), entry("Al", 5.0)]
    rows = export(class_, LAB, "gradebook").rows
    place = rows[0].index("platform_id")
    assert [row[place] for row in rows[1:]] == ["canvas 101", "canvas 102", ""]
    rows = export(class_, LAB, "canvas").rows
    assert [row[1] for row in rows[2:]] == ["101", "102", ""]

    text = f"Student,ID,SIS User ID,SIS Login ID,Section,{LAB} (7)\nPoints Possible,,,,,20\n"
    text += "Jo,102,,jo2,A,\nJo,101,102,jo1,A,\nAl,3,,al,A,\n"  # a number of one is another's of another kind
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    made = export(class_, LAB, "canvas", tmp_path / "roster.csv")
    assert [(row[1], row[-1]) for row in made.rows[2:]] == [("102", "9"), ("101", "7"), ("3", "5")]
    assert made.not_found == []

    class_ = [of_platform("Jo", "moodle 12", 7.0), of_platform("Jo (moodle 21)", "moodle 21", 9.0)]
    text = "Identifier,Full name,Email address,Status,Grade,Maximum Grade\n"
    text += "Participant 21,Jo,a@x.edu,Submitted,,20\nParticipant 12,Jo,b@x.edu,Submitted,,20\n"
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    made = export(class_, LAB, "moodle", tmp_path / "roster.csv")
    assert [(row[0], row[4]) for row in made.rows[1:]] == [("Participant 21", "9"), ("Participant 12", "7")]


def test_a_canvas_number_goes_from_the_hand_in_to_the_results(tmp_path: Path) -> None:
    result = Result("Jo", "graded", 7.0, 20.0, [], [], platform="canvas 101")
    assert Result.from_record(result.as_record()) == result
    older = {key: value for key, value in result.as_record().items() if key != "platform"}
    assert Result.from_record(older).platform == ""


def test_who_is_left_empty_is_said() -> None:
    assert export(CLASS, LAB, "canvas").without_grade == ["gus (unreadable)", "fay (not handed in)"]


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Lab 91: Made (77),Lab 92 (78),Final Score
    Points Possible,,,,,20,10,(read only)
"Lovelace, Ada",11,u1,ada,A,,5,50
"Smith, ""Jo"" Ann",12,u2,sja,A,3,5,50
李小龙,13,u3,lxl,A,,,
"Eins, Anna",14,u4,,A,,,
"Nobody, Fay",15,u5,fay,A,12,,
"""


def test_canvass_own_file_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(CANVAS, encoding="utf-8-sig")
    made = export(CLASS, LAB, "canvas", tmp_path / "roster.csv")
    assert made.not_found == ["=1+1"]
    rows = {row["ID"]: row for row in table("canvas", tmp_path, roster=tmp_path / "roster.csv")}
    title = "Lab 91: Made (77)"
    assert {number: row[title] for number, row in rows.items()} == {
        "": "20", "11": "16", "12": "20", "13": "0", "14": "", "15": "12",
    }  # fmt: skip
    assert "Lab 92 (78)" not in rows["11"] and "Final Score" not in rows["11"]


def test_canvas_gets_a_column_where_it_has_none(tmp_path: Path) -> None:
    text = "\n".join(",".join(line.split(",")[:-3]) for line in CANVAS.splitlines()[:3])
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    rows = table("canvas", tmp_path, roster=tmp_path / "roster.csv")
    assert [row[LAB] for row in rows] == ["20", "16"]


MOODLE = """Identifier,"Full name","Email address",Status,Grade,"Maximum Grade","Feedback comments"
"Participant 501","Ada Lovelace",ada@x.edu,"Submitted for grading",,"20.00",
"Participant 502","Ann Smith",ann@x.edu,"No submission",,"20.00",kept
"""


def test_moodles_worksheet_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(MOODLE, encoding="utf-8")
    rows = table("moodle", tmp_path, roster=tmp_path / "roster.csv")
    assert [(row["Identifier"], row["Grade"], row["Feedback comments"]) for row in rows] == [
        ("Participant 501", "16", ""),
        ("Participant 502", "", "kept"),
    ]


@pytest.mark.parametrize("name", ["Ada Lovelace", "ada", "501", "Lovelace, Ada", "lovelaceada", "ADA@x.edu"])
def test_a_student_is_found_by_any_name_that_a_platform_gives(name: str, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(MOODLE, encoding="utf-8")
    made = export([entry(name, 7.0)], LAB, "moodle", tmp_path / "roster.csv")
    assert made.not_found == ([] if name != "lovelaceada" else ["lovelaceada"])
    assert made.rows[1][4] == ("7" if name != "lovelaceada" else "")


def test_two_of_one_name_are_left_to_a_person(tmp_path: Path) -> None:
    twice = MOODLE.replace("Ann Smith", "Ada Lovelace").replace("ann@", "ada2@")
    (tmp_path / "roster.csv").write_text(twice, encoding="utf-8")
    made = export([entry("Ada Lovelace", 7.0)], LAB, "moodle", tmp_path / "roster.csv")
    assert made.not_found == ["Ada Lovelace"]
    assert [row[4] for row in made.rows[1:]] == ["", ""]


@pytest.mark.parametrize(
    ("form", "text", "says"),
    [
        ("canvas", MOODLE, "no column 'Student'"),
        ("moodle", CANVAS, "no column 'Grade'"),
        ("canvas", "", "no column 'Student'"),
        ("moodle", MOODLE.replace("20.00", "100.00"), "in 100.00 points and the lab in 20"),
        ("canvas", CANVAS.replace("Lab 92 (78)", "lab91 late (78)"), "2 columns for lab91_made"),
        ("gradebook", CANVAS, "--format canvas or moodle"),
    ],
)
def test_a_roster_that_does_not_fit_is_refused(form: str, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"roster|Moodle") as error:
        export(CLASS, LAB, form, tmp_path / "roster.csv")
    assert says in str(error.value)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """One graded student with a comma, one unreadable, one who handed nothing in."""
    put_programs_on_path()
    root = tmp_path_factory.mktemp("export")
    made = Course(root / "solutions", root / "labs", root / "data")
    made.solutions.mkdir()
    made.data.mkdir()
    (made.solutions / f"{LAB}.py").write_text('# %% test="first" points=20\nassert 1\n')
    with Gradebook(made.gradebook_url) as gradebook:
        gradebook.add_assignment(LAB)
        gradebook.add_notebook(LAB, LAB)
        gradebook.add_grade_cell("first", LAB, LAB, max_score=20, cell_type="code")
        gradebook.add_student(COMMA)
        gradebook.add_student("fay")
        gradebook.add_submission(LAB, COMMA)
        grade = gradebook.find_grade("first", LAB, LAB, COMMA)
        grade.auto_score, grade.needs_manual_grade = 13, False
        gradebook.db.commit()
    save(made, LAB, Result(COMMA, "graded", 13.0, 20.0, [], [TestResult("first", 13.0, 20.0, "passed", "")]))
    save(made, LAB, Result("gus", "unreadable", 0.0, 20.0, ["The file is not valid JSON."], []))
    return made


def test_the_command(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(Course, "default", classmethod(lambda cls: course))
    assert main(["export", "lab91", "--format", "canvas", "--out", str(tmp_path / "deep" / "c.csv")]) == 0
    assert "no grade: fay (not handed in), gus (unreadable)" in capsys.readouterr().out
    (tmp_path / "roster.csv").write_text(MOODLE, encoding="utf-8")
    command = ["export", "lab91", "--format", "moodle", "--roster", str(tmp_path / "roster.csv")]
    assert main([*command, "--out", str(tmp_path / "m.csv")]) == 1
    assert f"more than once: {COMMA}; enter these by hand" in capsys.readouterr().out


def test_nbgraders_own_export_writes_the_same_scores(course: Course, tmp_path: Path) -> None:
    folders = f"Path({str(course.solutions)!r}), Path({str(course.releases)!r}), Path({str(course.data)!r})"
    (tmp_path / "nbgrader_config.py").write_text(
        "from pathlib import Path\nfrom autograder.course import Course, nbgrader_config\n"
        f"get_config().merge(nbgrader_config(Course({folders})))\n"
    )
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "nbgrader", "export"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = {row["student_id"]: row for row in csv.DictReader((tmp_path / "grades.csv").open(encoding="utf-8"))}
    assert {name: (row["score"], row["status"]) for name, row in rows.items()} == {
        COMMA: ("13.0", "graded"), "fay": ("", "not handed in"), "gus": ("", "unreadable"),
    }  # fmt: skip
