"""Scores go to Canvas and Moodle and are read there as they were meant: round trips through what their importers do.

The importers here follow the platforms' own (Canvas: gradebook_importer; Moodle: the offline grading worksheet and the
CSV import of grades) in what they read, refuse and skip. No platform runs here.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.__main__ import main
from autograder.course import Course, UserError, put_programs_on_path
from autograder.late import read_rules, set_deadline, set_moment
from autograder.people import roll
from autograder.people.roll import NOT_HANDED_IN, Entry, class_of
from autograder.results import Result, TestResult, save

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
LAB = "lab01_allreduce"
TITLE = "Lab 01: AllReduce"
BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
# login: (number on the platform, sortable name, e-mail); names with commas, quotes, semicolons, in Chinese
PEOPLE = {
    "ada": (101, "Lovelace, Ada", "ada@x.edu"),
    "jo": (102, 'Smith, "Jo" Ann', "jo@x.edu"),
    "lxl": (103, "李, 小龙", "lxl@x.edu"),
    "jm": (104, "Müller; zu Hof, Jörg", "jm@x.edu"),
    "zero": (105, "O'Neil, Zero", "zero@x.edu"),
    "none": (106, "Later, Nel", "none@x.edu"),
    "away": (107, "Away, Ay", "away@x.edu"),
}
SCORES = {"ada": 16.5, "jo": 20.0, "lxl": 13.3333, "jm": 7.25, "zero": 0.0, "none": None}


def entry(student: str, score: float | None, penalty: float = 0.0) -> Entry:
    status = "graded" if score is not None else NOT_HANDED_IN
    result = Result(student, status, score, 20.0, [], []) if score is not None else None
    return Entry(student, status, result, 20.0, penalty)


CLASS = [entry(student, score) for student, score in SCORES.items()]


class Refused(Exception):
    """What an importer says before it has read anything."""


@dataclass
class Canvas:
    """A Canvas course with the lab, another assignment, a test student, and what its gradebook holds."""

    semicolons: bool = False
    bom: bool = False
    two_names: bool = False
    hidden: bool = False
    points: float = 20
    scores: dict[tuple[int, int], str] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=lambda: {77: TITLE, 78: "Essay, part (1)"})

    def download(self) -> bytes:
        """Its export: numbers with a comma where columns have semicolons; totals that it calls read only."""
        names = ["LastName", "FirstName"] if self.two_names else ["Student"]
        header = [*names, "ID", "SIS User ID", "SIS Login ID", "Section", "Notes"]
        lead, totals = len(header), ["Current Score", "Unposted Final Score"]
        rows = [[*header, *(f"{title} ({number})" for number, title in self.titles.items()), *totals]]
        if self.hidden:
            rows.append([""] * lead + ["Manual Posting", "", "", ""])
        rows.append(
            ["    Points Possible"]
            + [""] * (lead - 1)
            + [self.number(self.points), self.number(10), *["(read only)"] * 2]
        )
        for login, (number, name, _) in [*PEOPLE.items(), ("", (999, "Student, Test", ""))]:
            who = name.split(", ", 1) if self.two_names else [name]
            marks = [self.number(self.scores.get((number, one), "")) for one in self.titles]
            rows.append(
                [*who, str(number), f"sis{number}" if login else "", login, "A and B", "a, note", *marks, "50", "50"]
            )
        text = io.StringIO()
        csv.writer(text, delimiter=";" if self.semicolons else ",", lineterminator="\n").writerows(rows)
        return (BOM * self.bom + text.getvalue()).encode()

    def number(self, value: float | str) -> str:
        text = value if isinstance(value, str) else f"{value:.2f}"
        return text.replace(".", ",") if self.semicolons else text

    def upload(self, data: bytes) -> None:
        """Read a file as Canvas does; the scores change only when all of it could be read."""
        text = data.decode()
        first = [next(csv.reader([line], delimiter=mark)) for mark in ";," for line in text.splitlines()[:3]]
        counts = {mark: {len(row) for row in first[3 * n : 3 * n + 3]} for n, mark in enumerate(";,")}
        width = {mark: sizes.pop() if len(sizes) == 1 else 0 for mark, sizes in counts.items()}
        mark = ";" if width[";"] > width[","] else ","
        header, *rows = csv.reader(io.StringIO(text), delimiter=mark)
        if not (
            (len(header) > 3 and "Student" in header[0] and "ID" in header[1])
            or header[:2] == ["LastName", "FirstName"]
        ):
            raise Refused("Invalid header row")
        place = header.index("Section") + 1
        read: dict[tuple[int, int], str] = {}
        columns = {}
        for column, title in enumerate(header[place:], place):
            if title == "Notes" or re.search("Current Score|Final Score|Final Grade", title):
                continue
            found = re.fullmatch(r".*\s\((\d+)\)", title)
            columns[column] = int(found[1]) if found and int(found[1]) in self.titles else -column  # a new assignment
        for row in rows:
            if "Points Possible" in row[0]:
                self.points = self._read(
                    row[next(c for c, number in columns.items() if number in (77, -c))], self.points
                )
            elif all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", cell) for cell in row):
                continue
            else:
                student = self._student(header, row)
                for column, number in columns.items():
                    read[student, number] = row[column].strip()
        for key, told in read.items():
            if told.upper() in ("EX", "N/A"):
                self.scores[key] = told
            elif told:
                self.scores[key] = f"{self._read(told, 0):.2f}"
            else:
                self.scores.pop(key, None)  # an emptied field takes a score away

    @staticmethod
    def _read(text: str, otherwise: float) -> float:
        """Its converter: the last group of digits is behind the decimal mark, comma or point."""
        *whole, last = re.split("[,.]", text)
        return float(f"{''.join(whole)}.{last}" if whole else last) if text else otherwise

    @staticmethod
    def _student(header: list[str], row: list[str]) -> int:
        by_id = {number for number, _, _ in PEOPLE.values()} | {999}
        number = row[header.index("ID")]
        if number and int(number) in by_id:
            return int(number)
        for login, (number, name, _) in PEOPLE.items():
            if login in row or row[0] in (name, " ".join(reversed(name.split(", ")))):
                return number
        raise Refused(f"nobody is {row[0]}")

    def of_lab(self, number: int = 77) -> dict[int, str]:
        return {student: score for (student, lab), score in self.scores.items() if lab == number}


def sent(form: str, class_: list[Entry], roster: bytes | None, tmp_path: Path, code: int = 0) -> bytes:
    """What `autograder export` makes of the platform's own file."""
    (tmp_path / "roster.csv").write_bytes(roster or b"")
    words = ["export", "lab01", "--format", form, "--out", str(tmp_path / "out.csv")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roll, "class_of", lambda course, lab: class_)
        assert main(words + (["--roster", str(tmp_path / "roster.csv")] if roster else [])) == code
    return (tmp_path / "out.csv").read_bytes()


WANTED = {101: "16.50", 102: "20.00", 103: "13.33", 104: "7.25", 105: "0.00"}


@pytest.mark.parametrize("semicolons", [False, True])
@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize("two_names", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_canvas_reads_what_it_gave(semicolons: bool, bom: bool, two_names: bool, hidden: bool, tmp_path: Path) -> None:
    canvas = Canvas(semicolons, bom and not two_names, two_names, hidden, scores={(101, 78): "9.00"})
    out = sent("canvas", CLASS, canvas.download(), tmp_path)
    assert out.startswith(BOM.encode()) == (bom and not two_names)
    canvas.upload(out)
    assert canvas.of_lab() == WANTED, "who has no grade has none there, which is no zero; nor has the test student"
    assert canvas.points == 20 and canvas.scores[101, 78] == "9.00", "other assignments are not in the file"
    assert b"read only" not in out and b"Score" not in out


def test_canvas_keeps_what_we_do_not_know_and_what_a_person_decided(tmp_path: Path, capsys) -> None:
    canvas = Canvas(scores={(106, 77): "11.00", (101, 77): "EX", (102, 77): "N/A", (103, 77): "2.00"})
    canvas.upload(sent("canvas", CLASS, canvas.download(), tmp_path))
    assert canvas.of_lab() == WANTED | {106: "11.00", 101: "EX", 102: "N/A"}
    assert "excused (EX) or not assigned (N/A): ada (EX), jo (N/A)" in capsys.readouterr().out


def test_canvas_gets_a_new_mark_after_a_regrading_from_an_old_file_too(tmp_path: Path) -> None:
    canvas = Canvas()
    old = canvas.download()
    canvas.upload(sent("canvas", CLASS, old, tmp_path))
    better = [entry("ada", 19.0, penalty=1.5), *CLASS[1:]]
    for file in (old, canvas.download()):
        canvas.upload(sent("canvas", better, file, tmp_path))
        assert canvas.of_lab() == WANTED | {101: "17.50"}


def test_canvas_makes_the_assignment_where_it_has_none(tmp_path: Path) -> None:
    canvas = Canvas(titles={78: "Essay"})
    canvas.upload(sent("canvas", CLASS, canvas.download(), tmp_path))
    (new,) = {lab for _, lab in canvas.scores}
    assert new < 0 and canvas.of_lab(new) == WANTED

    canvas = Canvas(titles={})
    canvas.upload(sent("canvas", CLASS, None, tmp_path))  # without a file of Canvas's: by login
    (new,) = {lab for _, lab in canvas.scores}
    assert canvas.of_lab(new) == WANTED


def test_whom_the_platform_does_not_have_is_said(tmp_path: Path, capsys) -> None:
    canvas = Canvas()
    canvas.upload(sent("canvas", [*CLASS, entry("guest", 5.0)], canvas.download(), tmp_path, code=1))
    assert canvas.of_lab() == WANTED
    assert "more than once: guest; enter these by hand" in capsys.readouterr().out


@pytest.mark.parametrize(("form", "points"), [("canvas", "10,00"), ("moodle", "100,00")])
def test_other_points_are_refused(form: str, points: str, tmp_path: Path, capsys) -> None:
    file = (
        Canvas(semicolons=True, points=10).download() if form == "canvas" else Moodle(points=100, comma=True).download()
    )
    (tmp_path / "out.csv").write_bytes(b"")
    sent(form, CLASS, file, tmp_path, code=2)
    assert f"counts this assignment in {points} points and the lab in 20" in capsys.readouterr().err


@dataclass
class Moodle:
    """A Moodle assignment with its offline grading worksheet; times are minutes."""

    points: float = 20
    comma: bool = False  # the decimal mark of the site's language
    now: int = 0
    grades: dict[int, float] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)
    locked: frozenset[int] = frozenset()
    header = ("Identifier", "Full name", "ID number", "Email address", "Status", "Grade", "Maximum grade",
              "Grade can be changed", "Last modified (grade)", "Feedback comments")  # fmt: skip

    def number(self, value: float | None) -> str:
        text = "" if value is None else f"{value:.2f}"
        return text.replace(".", ",") if self.comma else text

    def download(self) -> bytes:
        rows = [list(self.header)]
        for number, name, mail in PEOPLE.values():
            full = " ".join(reversed(name.split(", ")))
            can = "No" if number in self.locked else "Yes"
            rows.append([f"Participant {number}", full, "", mail, "Submitted, for grading"])
            rows[-1] += [self.number(self.grades.get(number)), self.number(self.points), can]
            rows[-1] += [str(self.changed.get(number, "-")), "kept, as it is"]
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        return text.getvalue().encode()

    def upload(self, data: bytes) -> set[int]:
        """Its importer, with `allow overwriting newer` left off; the participants whose grade it changed."""
        rows = list(csv.reader(io.StringIO(data.decode().removeprefix(BOM).replace("\r\n", "\n"))))
        header = rows[0]
        if not {"Identifier", "Grade", "Last modified (grade)"} <= set(header) or {len(row) for row in rows} != {
            len(header)
        }:
            raise Refused("The uploaded file is no worksheet of this assignment, or its rows differ in length")
        self.now += 10
        updated = set()
        for row in rows[1:]:
            told = dict(zip(header, row, strict=True))
            number = int(told["Identifier"].removeprefix("Participant "))
            text = told["Grade"].replace(",", ".") if self.comma else told["Grade"]
            grade = float(text) if text.strip() else None
            since = int(told["Last modified (grade)"]) if told["Last modified (grade)"].isdigit() else 0
            newer = number in self.changed and self.changed[number] > since + 1
            if (
                grade is None
                or grade == self.grades.get(number)
                or newer
                or number in self.locked
                or not 0 <= grade <= self.points
            ):
                continue
            self.grades[number], self.changed[number] = grade, self.now
            updated.add(number)
            assert told["Feedback comments"] == "kept, as it is"
        return updated


GRADES = {101: 16.5, 102: 20.0, 103: 13.3333, 104: 7.25, 105: 0.0}


def by_participant(class_: list[Entry]) -> list[Entry]:
    """The class as its hand-ins came from Moodle: full names, and the numbers of participants."""
    named = []
    for one in class_:
        number, name, _ = PEOPLE[one.student]
        made = Entry(" ".join(reversed(name.split(", "))), one.status, one.result, 20.0, one.penalty)
        made.platform = f"moodle {number}"
        named.append(made)
    return named


@pytest.mark.parametrize("comma", [False, True])
@pytest.mark.parametrize("who", ["login", "participant"])
@pytest.mark.parametrize("saved_by", ["Moodle", "a German spreadsheet"])
def test_moodle_reads_what_it_gave(comma: bool, who: str, saved_by: str, tmp_path: Path) -> None:
    moodle, class_ = Moodle(comma=comma), CLASS if who == "login" else by_participant(CLASS)
    file = moodle.download()
    if saved_by != "Moodle":
        text = io.StringIO()
        csv.writer(text, delimiter=";", lineterminator="\r\n").writerows(csv.reader(io.StringIO(file.decode())))
        file = (BOM + text.getvalue()).encode()
    assert moodle.upload(sent("moodle", class_, file, tmp_path)) == set(GRADES)
    assert moodle.grades == GRADES, "an empty field is no zero"


def test_moodle_takes_a_regrading_from_a_worksheet_of_its_own_day(tmp_path: Path) -> None:
    moodle = Moodle(locked=frozenset({102}))
    old = moodle.download()
    assert moodle.upload(sent("moodle", CLASS, old, tmp_path)) == set(GRADES) - {102}
    better = [entry("ada", 19.0, penalty=1.5), *CLASS[1:]]
    assert moodle.upload(sent("moodle", better, old, tmp_path)) == set(), "skipped there: its grade is newer"
    assert moodle.upload(sent("moodle", better, moodle.download(), tmp_path)) == {101}
    assert moodle.grades[101] == 17.5 and 102 not in moodle.grades and 106 not in moodle.grades


def test_moodles_import_of_grades_by_mapping(tmp_path: Path) -> None:
    """Username to the user, Grade to the lab, the rest ignored; one unknown user ends the whole import there."""
    grades: dict[str, float | None] = {}
    for row in csv.DictReader(io.StringIO(sent("moodle", CLASS, None, tmp_path).decode())):
        if row["Username"] not in PEOPLE:
            raise Refused(f"User mapping error: could not find user {row['Username']}")
        grades[row["Username"]] = None if row["Grade"] in ("", "-") else float(row["Grade"].replace(",", "."))
    assert grades == SCORES


def test_a_persons_mark_and_the_late_penalty_are_in_what_is_sent(tmp_path: Path) -> None:
    put_programs_on_path()
    course = Course(tmp_path / "solutions", tmp_path / "labs", tmp_path / "data")
    course.data.mkdir()
    with Gradebook(course.gradebook_url) as book:
        book.add_assignment(LAB)
        book.add_notebook(LAB, LAB)
        book.add_grade_cell("first", LAB, LAB, max_score=20, cell_type="code")
        book.add_student("ada")
        book.add_submission(LAB, "ada")
        mark = book.find_grade("first", LAB, LAB, "ada")
        mark.auto_score, mark.manual_score, mark.needs_manual_grade = 13, 15.5, False
        book.find_submission_notebook(LAB, LAB, "ada").late_submission_penalty = 1.25
        book.db.commit()
    save(course, LAB, Result("ada", "graded", 13.0, 20.0, [], [TestResult("first", 13, 20, "passed", "")]))
    canvas, moodle = Canvas(), Moodle()
    canvas.upload(sent("canvas", class_of(course, LAB), canvas.download(), tmp_path))
    moodle.upload(sent("moodle", class_of(course, LAB), moodle.download(), tmp_path))
    assert canvas.of_lab() == {101: "14.25"} and moodle.grades == {101: 14.25}


def test_an_extension_counts_before_the_late_penalty(tmp_path: Path) -> None:
    put_programs_on_path()
    course = Course(tmp_path / "solutions", tmp_path / "labs", tmp_path / "data")
    course.data.mkdir()
    rules = "[deadlines]\nlab01 = 2026-03-02T12:00:00\n[extensions.lab01]\nada = 2\nbo = 0.5\n"
    (course.data / "course.toml").write_text(rules)
    with Gradebook(course.gradebook_url) as book:
        book.add_assignment(LAB)
        for name in ("ada", "bo", "cy"):
            book.add_student(name)
        book.add_submission(LAB, "cy")
    handed_in, told = datetime(2026, 3, 3, 12, tzinfo=UTC), read_rules(course.data)
    set_deadline(course, LAB, told)
    for name in ("ada", "bo", "cy"):
        set_moment(course, LAB, name, handed_in, told)
    with Gradebook(course.gradebook_url) as book:
        late = {one.student_id: one.total_seconds_late for one in book.assignment_submissions(LAB)}
    assert late == {"ada": 0, "bo": 12 * 3600, "cy": 24 * 3600}
    (course.data / "course.toml").write_text("[extensions.lab01]\nada = -1\n")
    with pytest.raises(UserError, match="the extension of ada for lab01, -1, is no number of days from 0 to 366"):
        read_rules(course.data)
