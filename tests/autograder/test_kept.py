"""Releases are kept: a hand-in of an older one is graded by its own tests. Lateness costs what the class says."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder.course import REPO, Course, UserError
from autograder.grade import Result, grade
from autograder.intake import collect
from autograder.kept import fingerprint, kept_release, kept_releases, recognise
from autograder.late import LatePenalty, Rules, _span, read_rules
from autograder.release import release
from tests.autograder.intake_tools import TOY, cell_of, put, taken

FLOATS = ("isinstance(run.value, int)", "isinstance(run.value, float)")
POINTS = (('keeps" points=5', 'keeps" points=1'), ("points=6", "points=10"))
RULES = """
time_zone = "Asia/Shanghai"
[late]
method = "percent_per_day"
percent = 10
grace_minutes = 5
[deadlines]
lab90 = 2026-03-02T23:59:00
"""


def released_as(course: Course, *changes: tuple[str, str]) -> Any:
    """Release the toy lab with changes in its source; the release."""
    source = (REPO / "tests" / "toy_lab" / "solutions" / f"{TOY}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    (course.solutions / f"{TOY}.py").write_text(source, encoding="utf-8")
    return nbformat.read(release(course, TOY), as_version=4)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    root = tmp_path_factory.mktemp("kept")
    (root / "solutions").mkdir()
    return Course(root / "solutions", root / "labs", root / "data")


@pytest.fixture(scope="module")
def releases(course: Course) -> dict[str, Any]:
    """Three releases: one whose test asked for floats, one with other points, the newest; and one mended unseen."""
    made = {
        "floats": released_as(course, FLOATS),
        "points": released_as(course, *POINTS, ("value == 6, f", "value == 7, f")),
    }
    made["points"] = released_as(course, *POINTS)  # its hidden test was wrong and is mended
    made["newest"] = released_as(course)
    return made


def answer(notebook: Any, value: str) -> Any:
    notebook = nbformat.reads(nbformat.writes(notebook), as_version=4)
    cell_of(notebook, "answer_steps").source = f"def answer_steps(p):\n    return {value}"
    cell_of(notebook, "pass_on").source = (
        "def pass_on(x):\n    p, me = dist.get_world_size(), dist.get_rank()\n    got = torch.empty_like(x)\n"
        "    for work in [dist.isend(x, (me + 1) % p), dist.irecv(got, (me - 1) % p)]:\n        work.wait()\n"
        "    return got"
    )
    return notebook


def test_a_release_is_kept_under_what_students_see_of_it(course: Course, releases: dict[str, Any]) -> None:
    kept = {one.id: one for one in kept_releases(course.data, TOY)}
    assert set(kept) == {fingerprint(notebook) for notebook in releases.values()}
    assert all(one.metadata.course.release == fingerprint(one) for one in releases.values())
    mended = kept[fingerprint(releases["points"])]
    assert "value == 6, f" in cell_of(mended.instructor, "steps_value").source
    assert kept_release(course.data, TOY, "../..") is None


def test_a_release_is_recognised_without_its_hash(course: Course, releases: dict[str, Any]) -> None:
    kept = kept_releases(course.data, TOY)
    for notebook in releases.values():
        for forget in (["course"], ["course", "marks"]):
            handed = answer(notebook, "6")
            handed.metadata.pop("course")
            if "marks" in forget:
                handed.metadata = {}
                for cell in handed.cells:
                    cell.metadata = {}
            found = recognise(handed, kept)
            same_texts = {fingerprint(releases["newest"]), fingerprint(releases["points"])}
            if "marks" in forget and fingerprint(notebook) in same_texts:
                assert found.id in same_texts  # points alone cannot be told without marks
            else:
                assert found.id == fingerprint(notebook)
    assert recognise(nbformat.v4.new_notebook(), kept) is None


def test_each_hand_in_gets_the_cells_of_its_own_release(
    course: Course, releases: dict[str, Any], tmp_path: Path
) -> None:
    for name, notebook in releases.items():
        put(tmp_path / "in" / f"{name}.ipynb", answer(notebook, "6"))
    unknown = answer(releases["newest"], "6")
    unknown.metadata.course.release = "0" * 12
    put(tmp_path / "in" / "unknown.ipynb", unknown)
    found = {one.student: one for one in collect(tmp_path / "in", TOY, course)}
    assert found["newest"].notes == [] == found["unknown"].notes
    assert {name: one.assignment for name, one in found.items()} == {
        "floats": TOY,
        "points": f"{TOY}.{fingerprint(releases['points'])}",
        "newest": TOY,
        "unknown": TOY,
    }
    assert found["floats"].notes == [
        f"it was made from an older release of the lab, {fingerprint(releases['floats'])} of "
        f"{datetime.now(UTC):%Y-%m-%d}, and was graded by that release's own tests"
    ]
    assert "float" in cell_of(taken(course, found["floats"]), "steps_form").source
    again = {one.student: one for one in collect(tmp_path / "in", TOY, course, newest_tests=True)}
    assert {one.assignment for one in again.values()} == {TOY}
    assert "int)" in cell_of(taken(course, again["floats"]), "steps_form").source
    shutil.rmtree(course.data / "submitted")


def by_name(results: list[Result]) -> dict[str, Result]:
    return {result.student: result for result in results}


@pytest.mark.heavy
def test_grading_older_releases_and_late_hand_ins(course: Course, releases: dict[str, Any], tmp_path: Path) -> None:
    (course.data / "course.toml").write_text(RULES, encoding="utf-8")
    here = tmp_path / "in"
    put(here / "Floats.ipynb", answer(releases["floats"], "6.0"))
    put(here / "Points.ipynb", answer(releases["points"], "5"))
    put(here / f"Late+{TOY}+2026-03-03 10:00:00.000000 UTC" / f"{TOY}.ipynb", answer(releases["newest"], "6"))
    put(here / f"In grace+{TOY}+2026-03-02 16:02:00.000000 UTC" / f"{TOY}.ipynb", answer(releases["newest"], "6"))
    got = by_name(grade(course, TOY, here))
    assert {name: (one.score, one.max_score, one.status) for name, one in got.items()} == {
        "Floats": (20, 20, "graded"),
        "Points": (10, 20, "graded"),
        "Late": (18, 20, "graded"),
        "In grace": (20, 20, "graded"),
    }
    assert got["Late"].notes == [
        "handed in 18 h 1 min late, at 2026-03-03 18:00 (Asia/Shanghai), "
        "the deadline was 2026-03-02 23:59 (Asia/Shanghai); 2 points were taken off"
    ]
    assert "3 min late" in got["In grace"].notes[0] and "no points" in got["In grace"].notes[0]
    own = f"{TOY}.{fingerprint(releases['points'])}"
    with Gradebook(course.gradebook_url) as gradebook:
        names = {one.name: {s.student_id: s.score for s in one.submissions} for one in gradebook.assignments}
    assert names == {TOY: {"Floats": 20, "Late": 20, "In grace": 20}, own: {"Points": 10}}

    newest = by_name(grade(course, TOY, here, newest_tests=True))
    assert (newest["Floats"].score, newest["Points"].score) == (16, 14)
    with Gradebook(course.gradebook_url) as gradebook:
        assert [s.student_id for s in gradebook.find_assignment(own).submissions] == []
        assert {s.student_id for s in gradebook.find_assignment(TOY).submissions} == set(newest)
    assert not (course.data / "submitted" / "Points" / own).exists()


@pytest.mark.parametrize(
    ("method", "seconds", "penalty"),
    [
        ("none", 9e9, None),
        ("zero", 400, 18),
        ("zero", 200, None),
        ("percent_per_day", 299, None),
        ("percent_per_day", 301, 1.8),
        ("percent_per_day", 300 + 86_400, 1.8),
        ("percent_per_day", 302 + 86_400, 3.6),
        ("percent_per_day", 9e9, 18),
    ],
)
def test_penalties(method: str, seconds: float, penalty: float | None) -> None:
    plugin = LatePenalty(penalty_method=method, percent=10.0, grace_minutes=5.0)
    assert plugin.late_submission_penalty("Ada", 18.0, seconds) == penalty


def test_rules_are_read_in_the_classs_time_zone(tmp_path: Path) -> None:
    assert read_rules(tmp_path) == Rules()
    put(tmp_path / "course.toml", RULES)
    rules = read_rules(tmp_path)
    assert rules.deadlines == {"lab90": datetime(2026, 3, 2, 15, 59, tzinfo=UTC)}
    assert rules.told(rules.deadlines["lab90"]) == "2026-03-02 23:59 (Asia/Shanghai)"
    put(tmp_path / "course.toml", 'time_zone = "Europe/Berlin"\n[deadlines]\na = 2026-03-29\nb = 2026-10-01T08:00:00Z')
    assert read_rules(tmp_path).deadlines == {
        "a": datetime(2026, 3, 29, 21, 59, 59, tzinfo=UTC),  # the day that summer time begins
        "b": datetime(2026, 10, 1, 8, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('time_zone = "Mars/Base"', "no time zone"),
        ("time_zone = 8", "no time zone"),
        ('[late]\nmethod = "half"', "none of none, zero"),
        ("[late]\npercent = 120", "no number from 0 to 100"),
        ("[late]\nprecent = 1", "'precent' is not an entry of"),
        ("[deadlines]\nlab90 = 7", "is no time such as"),
        ('[deadlines]\nlab90 = "soon"', "soon"),
        ("zone = 1", "'zone' is not an entry"),
        ("late", "Expected"),
    ],
)
def test_rules_that_cannot_be_used_are_said(tmp_path: Path, text: str, why: str) -> None:
    put(tmp_path / "course.toml", text)
    with pytest.raises(UserError, match=why) as error:
        read_rules(tmp_path)
    assert "course.toml" in str(error.value)


def test_spans() -> None:
    assert [_span(s) for s in (5, 60, 3_700, 86_400, 200_000)] == ["5 s", "1 min", "1 h 1 min", "1 day", "2 days 7 h"]
