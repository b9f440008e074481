"""The exchange: what is collected is what its student handed in, as plain files, and no link is followed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeError
from traitlets.config import Config

from autograder.course import put_programs_on_path
from autograder.hub import exchange
from autograder.hub.exchange import Collect, ReleaseAssignment, ReleaseFeedback, copy_plain

COURSE, LAB = "llm", "lab01_allreduce"
EARLY, LATE = "2026-10-01 10:00:00.000000 UTC", "2026-10-02 10:00:00.000000 UTC"


def settings(root: Path) -> Config:
    config = Config()
    config.CourseDirectory.root = str(root / "course")
    config.CourseDirectory.course_id, config.CourseDirectory.assignment_id = COURSE, LAB
    config.Exchange.root = str(root / "exchange")
    return config


def made(kind: type, root: Path, **more: str):
    put_programs_on_path()  # nbgrader runs alembic by its name
    config = settings(root)
    for name, value in more.items():
        config.CourseDirectory[name] = value
    return kind(coursedir=CourseDirectory(config=config), config=config)


def hand_in(root: Path, folder: str, name: str, when: str, text: str) -> Path:
    place = root / "exchange" / COURSE / "inbound" / folder / f"{name}+{LAB}+{when}+abcdefghijkl"
    place.mkdir(parents=True)
    (place / f"{LAB}.ipynb").write_text(text)
    (place / "timestamp.txt").write_text(when)
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("course", f"exchange/{COURSE}/inbound", f"exchange/{COURSE}/feedback"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def collected(root: Path, student: str) -> Path:
    return root / "course" / "submitted" / student / LAB / f"{LAB}.ipynb"


def test_the_newest_hand_in_of_each_student_is_collected(root: Path) -> None:
    hand_in(root, "ada", "ada", EARLY, "first")
    hand_in(root, "ada", "ada", LATE, "second")
    hand_in(root, "bo", "bo", EARLY, "bo's")
    made(Collect, root).start()
    assert collected(root, "ada").read_text() == "second"
    assert collected(root, "bo").read_text() == "bo's"


def test_one_student_is_collected_alone(root: Path) -> None:
    hand_in(root, "ada", "ada", EARLY, "first")
    hand_in(root, "bo", "bo", EARLY, "bo's")
    made(Collect, root, student_id="bo").start()
    assert collected(root, "bo").exists() and not collected(root, "ada").exists()


@pytest.mark.parametrize(("cheat", "victim"), [("ada", "bo"), ("bo", "ada")])  # whoever is collected first
def test_a_hand_in_under_another_name_is_not_collected(root: Path, cheat: str, victim: str) -> None:
    hand_in(root, cheat, victim, LATE, "not the victim's")
    hand_in(root, victim, victim, EARLY, "the victim's own")
    made(Collect, root).start()
    assert collected(root, victim).read_text() == "the victim's own"
    assert not collected(root, cheat).exists()


def test_a_hand_in_for_one_who_has_handed_in_nothing_is_not_collected(root: Path) -> None:
    hand_in(root, "bo", "ada", LATE, "bo as ada")
    made(Collect, root).start()
    assert not collected(root, "ada").exists() and not collected(root, "bo").exists()


def test_links_and_pipes_are_left_out_and_nothing_waits(tmp_path: Path) -> None:
    secret = tmp_path / "gradebook.db"
    secret.write_text("marks")
    source, target = tmp_path / "in", tmp_path / "out"
    (source / "more").mkdir(parents=True)
    (source / "lab.ipynb").write_text("{}")
    (source / "more" / "data.txt").write_text("data")
    (source / "linked.ipynb").symlink_to(secret)
    (source / "folder").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(source / "s"))
        left = copy_plain(source, target)
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {"lab.ipynb", "more/data.txt"}
    assert {line.split()[0] for line in left} >= {"linked.ipynb", "pipe", "s"}
    assert "marks" not in "".join(path.read_text() for path in target.rglob("*") if path.is_file())


def test_a_linked_hand_in_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "gradebook.db").write_text("marks")
    (tmp_path / "in").symlink_to(tmp_path / "secret")
    copy_plain(tmp_path / "in", tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*"))


def test_a_hand_in_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MOST_BYTES", 10)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("12345678")
    (tmp_path / "in" / "b.txt").write_text("12345678")
    left = copy_plain(tmp_path / "in", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.txt"]
    assert len(left) == 1 and left[0].startswith("b.txt was left out")


def test_feedback_goes_into_its_students_folder_alone(root: Path) -> None:
    for name in ("ada", "bo"):
        (root / "exchange" / COURSE / "feedback" / name).mkdir()
        place = root / "course" / "feedback" / name / LAB
        place.mkdir(parents=True)
        (place / f"{LAB}.html").write_text(f"for {name}")
        (place / "timestamp.txt").write_text(EARLY)
        (place / "submission_secret.txt").write_text(f"secret of {name}")
    made(ReleaseFeedback, root).start()
    for name in ("ada", "bo"):
        (page,) = (root / "exchange" / COURSE / "feedback" / name).iterdir()
        assert page.read_text() == f"for {name}"


def test_a_release_leaves_the_exchange_closed_to_others(root: Path) -> None:
    (root / "exchange").chmod(0o755)
    place = root / "course" / "release" / LAB
    place.mkdir(parents=True)
    (place / f"{LAB}.ipynb").write_text("{}")
    made(ReleaseAssignment, root).start()
    assert (root / "exchange" / COURSE / "outbound" / LAB / f"{LAB}.ipynb").is_file()
    assert stat.S_IMODE((root / "exchange").stat().st_mode) == 0o755


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(root: Path) -> None:
    os.chown(root / "exchange" / COURSE, 500_001, 500_001)
    place = root / "course" / "release" / LAB
    place.mkdir(parents=True)
    with pytest.raises(ExchangeError):
        made(ReleaseAssignment, root).start()
