"""A class's folder is saved while people work in it, lost, and made again elsewhere: all that counted is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from nbgrader.api import Gradebook

from autograder.__main__ import main, parser
from autograder.course import REPO, UserError, put_programs_on_path
from autograder.hub import people
from autograder.hub.backup import backup, restore
from autograder.hub.classfile import Person
from autograder.hub.init import enrol_in_folder
from autograder.hub.layout import Layout
from autograder.hub.passwords import Passwords
from autograder.people.export import export
from autograder.people.roll import class_of
from autograder.results import Result, TestResult, save

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
LAB = "lab01_allreduce"
WRITER = """
import sqlite3, sys, time
book = sqlite3.connect(sys.argv[1], timeout=30)
book.execute("pragma cache_size = 2")  # so that half a transaction stands in the file while it lasts
log = open(sys.argv[2], "ab", buffering=0)
n = 0
while True:
    with book:  # a copy has both letters' rows or neither's
        for letter in "ab":
            rows = [(f"{letter}{n}-{k}" + 60 * "x",) for k in range(300)]
            book.executemany("insert into course (id) values (?)", rows)
            time.sleep(0.03)
    log.write(b"x" * 9999)
    time.sleep(0.03)
    n += 1
    print(n, flush=True)
"""


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two students and a lab; one is graded, with a mark given by a person. Made once: it takes SQLite many commits."""
    put_programs_on_path()
    path = tmp_path_factory.mktemp("gradebook") / "gradebook.db"
    with Gradebook(f"sqlite:///{path}") as book:
        book.add_assignment(LAB)
        book.add_notebook(LAB, LAB)
        book.add_grade_cell("first", LAB, LAB, max_score=20, cell_type="code")
        for name in ("ada", "bo"):
            book.add_student(name)
        book.add_submission(LAB, "ada")
        mark = book.find_grade("first", LAB, LAB, "ada")
        mark.auto_score, mark.manual_score, mark.needs_manual_grade = 13, 15.5, False
        book.db.commit()
    return path


@pytest.fixture
def klass(gradebook: Path, tmp_path: Path) -> tuple[Layout, dict[str, str]]:
    """A class without its hub: hand-ins, feedback, homes with odd things in them; and the passwords that were given."""
    folder = tmp_path / "here" / "llm"
    (folder / "secrets").mkdir(parents=True)
    (folder / "hub").mkdir()
    (folder / "class.yaml").write_text(yaml.safe_dump({"course": "llm", "labs": ["lab01"], "users": "one"}))
    layout = Layout.of(folder)
    (layout.data / "home").mkdir(parents=True)
    shutil.copy(gradebook, layout.data)
    everybody = [Person("ada", first="Ada", last="Lovelace"), Person("bo"), Person("grace", "instructor")]
    given = enrol_in_folder(layout, everybody)
    for name in ("proxy_token", "enrol_token", "cookie_secret"):
        (layout.secrets / name).write_text("s3cret\n")
    with closing(sqlite3.connect(layout.hub / "jupyterhub.sqlite")) as hub, hub:
        hub.execute("create table users (name)")
        hub.execute("insert into users values ('ada')")
    tests = [TestResult("first", 13, 20, "passed", "")]
    save(layout.course, LAB, Result("ada", "graded", 13.0, 20.0, ["a note"], tests))
    home = layout.home("ada")
    for place in (layout.inbound("ada"), layout.feedback("ada"), layout.data / "submitted" / "ada", home):
        (place / "李 lab01").mkdir(parents=True)
        (place / "李 lab01" / "lab01.ipynb").write_text(f"{place.name} 小龙", encoding="utf-8")
    (home / "link").symlink_to("/etc/shadow")
    (home / "folder").symlink_to("/etc")
    os.mkfifo(home / "pipe")
    (home / "run.sh").write_text("#!/bin/sh\n")
    (home / "run.sh").chmod(0o750)
    (home / "empty").mkdir(mode=0o700)
    return layout, given


@pytest.fixture
def writer(klass: tuple[Layout, dict[str, str]]) -> Iterator[subprocess.Popen[str]]:
    """Somebody who never stops writing into the gradebook, and into a file."""
    layout = klass[0]
    argv = [sys.executable, "-c", WRITER, str(layout.data / "gradebook.db"), str(layout.home("bo") / "log")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "1\n"
            yield process
        finally:
            process.kill()


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What people have: modes and contents, of links where they lead."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        if not stat.S_ISFIFO(mode) and path.name != "log":
            found[str(path.relative_to(folder))] = (mode, content)
    return found


def test_a_class_that_is_lost_comes_back_elsewhere(
    klass: tuple[Layout, dict[str, str]], writer: subprocess.Popen[str], tmp_path: Path, capsys
) -> None:
    layout, given = klass
    before = {name: files(layout.folder / name) for name in ("homes", "exchange", "secrets", "course/submitted")}
    rows = export(class_of(layout.course, LAB), LAB, "gradebook").rows
    roll = people.enrolled(layout)
    for number in range(3):  # at three moments
        assert main(["hub", "backup", str(layout.folder), str(tmp_path / f"{number}.tar.gz")]) == 0
    assert "homes/ada/pipe" in capsys.readouterr().out
    assert writer.poll() is None
    writer.kill()
    shutil.rmtree(layout.folder.parent)

    new = tmp_path / "there" / "other"
    assert main(["hub", "restore", str(tmp_path / "2.tar.gz"), str(new)]) == 0
    again = Layout.of(new)
    assert export(class_of(again.course, LAB), LAB, "gradebook").rows == rows
    assert rows[1][9] == 15.5, "the mark that a person gave"
    assert {name: files(new / name) for name in before} == before
    assert people.enrolled(again) == roll and len(roll) == 3
    passwords = Passwords(again.secrets / "passwords.json")
    assert all(passwords.right(name, word) for name, word in given.items()) and not passwords.right("ada", "x")
    with closing(sqlite3.connect(again.hub / "jupyterhub.sqlite")) as hub:
        assert hub.execute("select name from users").fetchall() == [("ada",)]
    for text in (again.config.read_text(), (again.settings("grader") / "nbgrader_config.py").read_text()):
        assert str(new) in text and str(layout.folder) not in text


def test_a_database_in_use_is_copied_as_it_stood_at_one_moment(
    klass: tuple[Layout, dict[str, str]], writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    for number in range(4):
        time.sleep(0.01 * number)
        backup(klass[0], tmp_path / f"{number}.tar.gz")
        assert writer.poll() is None
        copy = restore(tmp_path / f"{number}.tar.gz", tmp_path / f"new{number}").data / "gradebook.db"
        with closing(sqlite3.connect(copy)) as book:
            assert book.execute("pragma integrity_check").fetchone() == ("ok",)
            names = [row[0] for row in book.execute("select id from course where id glob '[ab][0-9]*'")]
        pairs = {letter: {name[1:] for name in names if name[0] == letter} for letter in "ab"}
        assert pairs["a"] == pairs["b"] and pairs["a"]


def test_the_file_is_private_and_nothing_is_written_over(klass: tuple[Layout, dict[str, str]], tmp_path: Path) -> None:
    layout, file = klass[0], tmp_path / "b.tar.gz"
    before = os.umask(0)
    try:
        backup(layout, file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "here"], "nothing half made is left"
    content = file.read_bytes()
    with pytest.raises(UserError, match="is there already"):
        backup(layout, file)
    with pytest.raises(UserError, match="lies in the class's own folder"):
        backup(layout, layout.folder / "b.tar.gz")
    with pytest.raises(UserError, match="is there already"):
        restore(file, layout.folder)
    assert file.read_bytes() == content and (layout.folder / "class.yaml").is_file()


@pytest.mark.parametrize("kind", ["short", "other", "outside", "through a link"])
def test_what_is_no_whole_backup_leaves_nothing(
    kind: str, klass: tuple[Layout, dict[str, str]], tmp_path: Path
) -> None:
    file, new = tmp_path / "b.tar.gz", tmp_path / "new" / "llm"
    backup(klass[0], file)
    if kind == "short":
        file.write_bytes(file.read_bytes()[:-2000])
    elif kind == "other":
        file.write_bytes(b"PK" + file.read_bytes())
    else:
        plain, link = tarfile.REGTYPE, tarfile.SYMTYPE
        members = [("../x", plain)] if kind == "outside" else [("d", link), ("d/x", plain)]
        with tarfile.open(file) as archive:
            note = archive.next()
            text = archive.extractfile(note)
            with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as made:
                made.addfile(note, text)
                for name, form in members:
                    info = tarfile.TarInfo(name)
                    info.type, info.linkname = form, str(tmp_path)
                    made.addfile(info)
        file = tmp_path / "made.tar.gz"
    with pytest.raises(UserError, match="cannot be restored"):
        restore(file, new)
    assert not new.exists() and not list(new.parent.iterdir()) and not (tmp_path / "x").exists()


def test_a_gradebook_on_a_server_that_does_not_answer_is_said(
    klass: tuple[Layout, dict[str, str]], tmp_path: Path
) -> None:
    layout = klass[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (layout.data / "course.toml").write_text(f'gradebook = "postgresql+psycopg://grader@127.0.0.1:{port}/llm"\n')
    with pytest.raises(UserError, match=r"The gradebook's server was not copied: .*(refused|needs psycopg)"):
        backup(layout, tmp_path / "b.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


GUIDE = (REPO / "deploy" / "GUIDE.md").read_text(encoding="utf-8")


def test_every_message_of_the_guide_is_one_of_the_code() -> None:
    table = GUIDE.partition("## What goes wrong")[2].partition("\n## ")[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")][2:]
    messages = [part.strip("`") for cell in firsts for part in re.findall(r"`[^`]+`", cell)]
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((REPO / "autograder").rglob("*.py")))
    assert len(messages) >= 16
    assert [message for message in messages if message not in code] == []


def test_the_guides_commands_are_ones_that_there_are() -> None:
    found = [line.strip("` |") for line in re.findall(r"python -m autograder ([a-z][^`\n#:;]+)", GUIDE)]
    assert len(found) >= 9
    for words in found:
        parser().parse_args(shlex.split(words.replace(" 2>", "")))  # ends the process where it cannot be read
