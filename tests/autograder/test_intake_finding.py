"""Where hand-ins are found, whose they are, and which version counts."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autograder.course import Course, UserError
from autograder.intake import collect
from autograder.intake.finding import Finder, HandIn
from autograder.intake.names import loose_owner, owner_of, safe_name
from tests.autograder.intake_tools import TOY, Answered, put, released, taken, zipped


def find(place: Path, tmp_path: Path) -> dict[str, HandIn]:
    return {one.student: one for one in Finder(TOY, {"pass_on"}, tmp_path / "scratch").find(place)}


def dated(path: Path, day: int) -> Path:
    moment = datetime(2026, 3, day, tzinfo=UTC).timestamp()
    os.utime(path, (moment, moment))
    return path


def test_ways_of_handing_in(tmp_path: Path) -> None:
    here = tmp_path / "in"
    put(here / "Ada" / TOY / f"{TOY}.ipynb")
    put(here / "Ada" / TOY / ".ipynb_checkpoints" / f"{TOY}-checkpoint.ipynb")
    put(here / "Bo" / "my work.ipynb")
    put(here / f"{TOY}_Cy.ipynb")
    put(here / "Di, Eve (1).ipynb")
    put(here / "lab90_Fay.ipynb")
    put(here / "lab91_Gus.ipynb")
    put(here / ".hidden.ipynb")
    zipped(here / "Hal.zip", {f"{TOY}/deeper/{TOY}.ipynb": "{}", "__MACOSX/x.ipynb": "{}"})
    found = find(here, tmp_path)
    assert {name: one.notebook.name for name, one in found.items()} == {
        "Ada": f"{TOY}.ipynb",
        "Bo": "my work.ipynb",
        "Cy": f"{TOY}_Cy.ipynb",
        "Di, Eve": "Di, Eve (1).ipynb",
        "Fay": "lab90_Fay.ipynb",
        "Hal": f"{TOY}.ipynb",
    }


def test_canvas_and_moodle_and_the_exchange(tmp_path: Path) -> None:
    canvas = {
        "smithjohn_340934_208490284_lab01-1.ipynb": "{}",
        "rossichiara_LATE_340935_208490290_lab01.ipynb": "{}",
        "rossichiara_LATE_340935_208490291_data.csv": "1",
        "liwei_340936_208490300_work.zip": zipped(tmp_path / "w.zip", {"a/lab.ipynb": "{}"}).read_bytes(),
        "tanaka_340937_208490301_essay.pdf": "%PDF",
    }
    found = find(zipped(tmp_path / "canvas.zip", canvas), tmp_path / "1")
    assert {name: one.platform for name, one in found.items()} == {
        "smithjohn": "canvas 340934",
        "rossichiara": "canvas 340935",
        "liwei": "canvas 340936",
        "tanaka": "canvas 340937",
    }
    assert found["rossichiara"].marked_late and not found["smithjohn"].marked_late
    assert Path("data.csv") in found["rossichiara"].files.values()
    assert found["liwei"].notebook.name == "lab.ipynb"
    assert "only essay.pdf" in found["tanaka"].problem

    moodle = {
        "Ada Smith_12345_assignsubmission_file_/lab01.ipynb": "{}",
        "李 伟_12346_assignsubmission_file/sub/lab01.ipynb": "{}",
        "Bo_12347_assignsubmission_file_lab01.ipynb": "{}",
        "Cy_12348_assignsubmission_onlinetext_/onlinetext.html": "<p>",
    }
    found = find(zipped(tmp_path / "moodle.zip", moodle), tmp_path / "2")
    assert {name: bool(one.notebook) for name, one in found.items()} == {
        "Ada Smith": True,
        "李 伟": True,
        "Bo": True,
        "Cy": False,
    }

    inbound = tmp_path / "inbound"
    put(inbound / f"ada+{TOY}+2026-03-01 10:00:00.000000 UTC+x" / f"{TOY}.ipynb")
    put(inbound / f"ada+{TOY}+2026-03-02 09:30:00.000000 CET" / f"{TOY}.ipynb")
    put(inbound / "ada+lab91_other+2026-03-03 10:00:00.000000 UTC" / "lab91_other.ipynb")
    found = find(inbound, tmp_path / "3")
    assert found["ada"].when == datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    assert "of 2 hand-ins of ada the newest is graded" in found["ada"].notes[0]
    assert list(found) == ["ada"]


def test_a_zip_of_the_submitted_tree_in_a_zip(tmp_path: Path) -> None:
    tree = {f"submitted/{name}/{TOY}/{TOY}.ipynb": "{}" for name in ("Ada", "Bo")}
    inner = zipped(tmp_path / "x" / "class.zip", tree)
    outer = zipped(tmp_path / "outer.zip", {"class.zip": inner.read_bytes()})
    assert sorted(find(outer, tmp_path)) == ["Ada", "Bo"]
    loose = zipped(tmp_path / "loose.zip", {"my class/Ada.ipynb": "{}", "my class/Bo.ipynb": "{}"})
    assert sorted(find(loose, tmp_path / "again")) == ["Ada", "Bo"]


def test_the_newest_version_counts_and_it_is_said(tmp_path: Path) -> None:
    here = tmp_path / "in"
    dated(put(here / "Ada.ipynb"), 2)
    dated(put(here / "Ada (1).ipynb"), 3)
    dated(put(here / "Bo.ipynb"), 3)
    dated(put(here / "Bo" / "work.ipynb"), 1)
    put(here / "Cy_1_500_lab.ipynb")
    put(here / "Cy_1_400_lab-1.ipynb")
    found = find(here, tmp_path)
    assert found["Ada"].notebook.name == "Ada (1).ipynb"
    assert found["Ada"].notes == ["of 2 hand-ins of Ada the newest is graded, Ada (1).ipynb of 2026-03-03 00:00 UTC"]
    assert found["Bo"].notebook.name == "Bo.ipynb"
    assert found["Cy"].notebook.name == "Cy_1_500_lab.ipynb"


def test_two_students_of_one_name_stay_two(tmp_path: Path) -> None:
    names = ["Li Wei_1_assignsubmission_file_", "Li Wei_2_assignsubmission_file_"]
    found = find(zipped(tmp_path / "m.zip", {f"{name}/lab.ipynb": "{}" for name in names}), tmp_path)
    assert sorted(found) == ["Li Wei (moodle 1)", "Li Wei (moodle 2)"]
    assert all("2 students are named Li Wei" in one.notes[-1] for one in found.values())


def test_of_several_notebooks_the_labs_own_is_graded(tmp_path: Path) -> None:
    here = tmp_path / "in" / "Ada"
    put(here / "a scratch.ipynb", '{"cells": []}')
    put(here / "sub" / "my answers.ipynb", '{"grade_id": "pass_on"}')
    found = find(tmp_path / "in", tmp_path)
    assert found["Ada"].notebook.name == "my answers.ipynb"
    assert found["Ada"].notes == ["of 2 notebooks, sub/my answers.ipynb is graded"]
    dated(put(here / f"{TOY} (1).ipynb", '{"grade_id": "pass_on"}'), 2)
    dated(put(here / f"{TOY}.ipynb", '{"grade_id": "pass_on"}'), 1)
    assert find(tmp_path / "in", tmp_path / "2")["Ada"].notebook.name == f"{TOY} (1).ipynb"


def test_another_labs_hand_in_is_no_submission_and_an_empty_folder_is_a_bad_one(tmp_path: Path) -> None:
    put(tmp_path / "in" / "Ada" / "lab91_other" / "lab91_other.ipynb")
    (tmp_path / "in" / "Bo" / TOY).mkdir(parents=True)
    put(tmp_path / "in" / "Cy" / "work.rar", b"Rar!")
    found = find(tmp_path / "in", tmp_path)
    assert found["Bo"].problem == "The folder holds no notebook."
    assert "cannot be opened here" in found["Cy"].problem
    assert sorted(found) == ["Bo", "Cy"]


def test_links_and_pipes_are_not_followed(toy_course: Course, tmp_path: Path) -> None:
    here = tmp_path / "in"
    here.mkdir()
    secret = put(tmp_path / "secret" / f"{TOY}.ipynb", released(toy_course))
    (here / "Ada.ipynb").symlink_to(secret)
    (here / "Bo").symlink_to(secret.parent)
    put(here / "Cy" / "note.txt")
    (here / "Cy" / f"{TOY}.ipynb").symlink_to(secret)
    os.mkfifo(here / "Di.ipynb")
    (here / "Eve").mkdir()
    os.mkfifo(here / "Eve" / f"{TOY}.ipynb")
    for one in collect(here, TOY, toy_course):
        assert one.problem, one.student
        assert not (toy_course.data / "submitted" / one.student / TOY).exists()


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a/b", "a_b"),
        ("[x]*?", "_x___"),
        ("..", "unnamed"),
        ("O'Neil, Ann", "O'Neil, Ann"),
        ("a\nb\x00c", "a_b_c"),
        ("e\u0301", "é"),
        ("x" * 400, "x" * 100),
        ("\ud800", "?".replace("?", "_")),
        ("a+b", "a_b"),
    ],
)
def test_names_are_made_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize(
    ("stem", "name", "attempt"),
    [
        ("lab90_toy", "folder", 0),
        ("lab90 (1)", "folder", 1),
        ("Ada-lab90_toy-2", "Ada", 2),
        ("Ada lab90-Copy1", "Ada", 1),
        ("lab900 Ada", "lab900 Ada", 0),
        ("Anna-Lena", "Anna-Lena", 0),
    ],
)
def test_a_loose_file_is_named_after_its_student(stem: str, name: str, attempt: int) -> None:
    owner = loose_owner(stem, TOY, "folder")
    assert (owner.name, owner.attempt) == (name, attempt)


def test_names_that_follow_no_platform_are_left_to_the_folder() -> None:
    assert owner_of("Ada Smith") is None
    assert owner_of("a+b+never") is None


def test_no_place_and_no_notebook_are_said(toy_course: Course, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        collect(tmp_path / "nowhere", TOY, toy_course)
    with pytest.raises(UserError, match="cannot be unpacked"):
        collect(put(tmp_path / "bad.zip", b"PK\x03\x04 no more"), TOY, toy_course)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no submission"):
        collect(tmp_path / "empty", TOY, toy_course)


def test_the_submitted_tree_is_mended_in_place_and_the_original_kept(
    toy_course: Course, answered: Answered, tmp_path: Path
) -> None:
    course = toy_course.with_data(tmp_path / "data")
    broken = answered()
    broken.cells = [cell for cell in broken.cells if cell.id != "steps_form"]
    folder = course.data / "submitted" / "Ada" / TOY
    sent = put(folder / f"{TOY}.ipynb", broken)
    put(folder / "timestamp.txt", "2026-03-01 10:00:00.000000 UTC")
    original = sent.read_bytes()
    runs = [collect(course.data / "submitted", TOY, course) for _ in range(2)]
    for (submission,) in runs:
        assert submission.notes == ["cell steps_form was missing and has been put back"]
        assert submission.when == datetime(2026, 3, 1, 10, tzinfo=UTC)
        assert any(cell.id == "steps_form" for cell in taken(course, submission).cells)
    assert (course.data / "received" / "Ada" / TOY / f"{TOY}.ipynb").read_bytes() == original

    put(folder / f"{TOY}.ipynb", "{ cut off")  # the student hands in again, and badly
    for _ in range(2):
        (submission,) = collect(course.data / "submitted", TOY, course)
        assert "not valid JSON" in submission.problem
    put(folder / f"{TOY}.ipynb", answered())
    (submission,) = collect(course.data / "submitted", TOY, course)
    assert (submission.problem, submission.notes) == ("", [])


def test_nothing_is_left_of_unpacking(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    collect(zipped(tmp_path / "c.zip", {"Ada.ipynb": answered(), "Bo.zip": b"PK"}), TOY, toy_course)
    assert not list(toy_course.data.glob("intake-*"))


def test_times_are_told_in_the_classs_zone(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    course = toy_course.with_data(tmp_path / "data")
    put(course.data / "course.toml", 'time_zone = "Asia/Shanghai"')
    for when in ("2026-03-01 10:00:00", "2026-03-02 20:30:00"):
        put(tmp_path / "in" / f"ada+{TOY}+{when}.000000 UTC" / f"{TOY}.ipynb", answered())
    (submission,) = collect(tmp_path / "in", TOY, course)
    assert submission.notes[0].endswith(f"{TOY}.ipynb of 2026-03-03 04:30 (Asia/Shanghai)")
