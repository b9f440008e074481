"""`hub enrol` on a running hub: it reaches people.csv, the hub, the gradebook and the login, or it is refused."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from autograder.hub import people
from autograder.hub.api import Hub
from tests.hub.a_class import RunningClass, Visitor, hub_command

needs_hub = pytest.mark.skipif(not find_spec("jupyterhub"), reason="make test-hub has an environment with JupyterHub")
pytestmark = [pytest.mark.hub, pytest.mark.timeout(300), needs_hub]
FORMGRADER = "services/llm/formgrader/"


def enrol(klass: RunningClass, *words: object) -> dict[str, str]:
    """Enrol, and the passwords that were printed."""
    done = hub_command("enrol", klass.layout.folder, *words)
    assert done.returncode == 0 and "The running hub knows." in done.stdout, done.stdout + done.stderr
    return printed(done.stdout)


def printed(text: str) -> dict[str, str]:
    return dict(re.findall(r"^ {4}(\w+) +([a-z0-9]{4}-[a-z0-9]{4}-[a-z0-9]{4})$", text, re.MULTILINE))


def refused(klass: RunningClass, *words: object) -> str:
    """What `enrol` says when it refuses; that people.csv is as it was."""
    before = klass.layout.people.read_text()
    done = hub_command("enrol", klass.layout.folder, *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert klass.layout.people.read_text() == before
    return done.stderr


def may(klass: RunningClass, name: str, password: str) -> bool:
    return Visitor(klass.url).log_in(name, password)


def groups(klass: RunningClass, name: str) -> list[str] | None:
    """The hub's groups of a user; None where the hub has no such user."""
    user = Hub(klass.layout).ask("GET", f"/users/{name}", fine=(404,))
    return user and user["groups"]


def in_gradebook(klass: RunningClass, name: str) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(klass.layout.data / "gradebook.db")) as book:
        asked = "select first_name, last_name, email from student where id = ?"
        return book.execute(asked, (name,)).fetchall()


@contextmanager
def a_hub_that_says_no(klass: RunningClass) -> Iterator[None]:
    """The enrolment token is another for a while."""
    token = klass.layout.secrets / "enrol_token"
    right = token.read_text()
    token.write_text("wrong")
    try:
        yield
    finally:
        token.write_text(right)


def test_one_by_name(klass: RunningClass) -> None:
    given = enrol(klass, "cy", "--first", "Cy", "--last", "Young", "--email", "cy@example.org")
    assert groups(klass, "cy") == ["nbgrader-llm"]
    assert in_gradebook(klass, "cy") == [("Cy", "Young", "cy@example.org")]
    assert may(klass, "cy", given["cy"]) and not may(klass, "cy", "abcd-efgh-jkmn")
    assert enrol(klass, "cy", "--email", "cy@new.example.org") == {}  # again: no new password, the name stays
    assert in_gradebook(klass, "cy") == [("Cy", "Young", "cy@new.example.org")]
    assert "cannot be a user name" in refused(klass, "Not A Name")


def test_a_hub_that_refuses_is_an_error_and_the_password_is_not_lost(klass: RunningClass) -> None:
    with a_hub_that_says_no(klass):
        done = hub_command("enrol", klass.layout.folder, "dan")
    assert done.returncode == 2 and "The hub refused POST /users: 403" in done.stderr
    password = printed(done.stdout)["dan"]
    assert groups(klass, "dan") is None
    assert enrol(klass, "dan") == {} and groups(klass, "dan") == ["nbgrader-llm"] and may(klass, "dan", password)


def test_many_from_a_csv(klass: RunningClass, tmp_path: Path) -> None:
    roster = tmp_path / "roster.csv"
    roster.write_text("\ufeffname,first,last,email\neve,Eve,Ek,eve@example.org\nfay,菲,,\n", "utf-8")
    given = enrol(klass, "--csv", roster)
    assert sorted(given) == ["eve", "fay"] and all(may(klass, name, given[name]) for name in given)
    assert groups(klass, "eve") == groups(klass, "fay") == ["nbgrader-llm"]
    assert in_gradebook(klass, "eve") == [("Eve", "Ek", "eve@example.org")]
    assert in_gradebook(klass, "fay")[0][0] == "菲"
    assert enrol(klass, "--csv", roster) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,email\ngus,g@example.org\n", "no column `name`"),
        ("name\ngus\nGus H\n", "'Gus H' cannot be a user name"),
        ("name\ngus\nhal\ngus\n", "gus was named twice"),
        ("name\ngus\ngrace\n", "grace is an instructor here"),
        ("name\n", "or no row"),
    ],
)
def test_a_wrong_csv_enrols_nobody(klass: RunningClass, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "roster.csv").write_text(text)
    assert says in refused(klass, "--csv", tmp_path / "roster.csv")
    assert groups(klass, "gus") is None


def test_a_csv_that_is_not_there_is_refused(klass: RunningClass, tmp_path: Path) -> None:
    assert "none.csv cannot be read" in refused(klass, "--csv", tmp_path / "none.csv")
    assert "Nobody was named" in refused(klass)


def test_a_new_password_ends_the_old_one_and_its_logins(klass: RunningClass) -> None:
    first = enrol(klass, "ida")["ida"]
    before = Visitor(klass.url)
    assert before.log_in("ida", first)
    second = enrol(klass, "ida", "--new-password")["ida"]
    assert not before.inside() and not may(klass, "ida", first) and may(klass, "ida", second)
    assert groups(klass, "ida") == ["nbgrader-llm"]
    assert "Not enrolled: nobody1" in refused(klass, "ida", "nobody1", "--new-password")
    assert may(klass, "ida", second)


def test_who_is_removed_is_out_and_stays_out(klass: RunningClass) -> None:
    password = enrol(klass, "kim", "--first", "Kim")["kim"]
    inside = Visitor(klass.url)
    assert inside.log_in("kim", password)
    assert "Not enrolled: nobody1" in refused(klass, "kim", "nobody1", "--remove") and inside.inside()
    enrol(klass, "kim", "--remove")
    assert not inside.inside() and not may(klass, "kim", password) and groups(klass, "kim") is None
    assert in_gradebook(klass, "kim") == [("Kim", "", "")] and klass.layout.home("kim").is_dir()
    for words in (["--remove"], ["--new-password"]):
        assert "Not enrolled: kim" in refused(klass, "kim", *words)
    uid = people.enrolled(klass.layout)["kim"].uid
    enrol(klass, "kim")
    assert may(klass, "kim", password) and people.active(klass.layout)["kim"].uid == uid


def test_an_instructor_opens_formgrader_and_a_student_does_not(klass: RunningClass) -> None:
    password = enrol(klass, "lou", "--role", "instructor")["lou"]
    assert groups(klass, "lou") == ["formgrade-llm"] and in_gradebook(klass, "lou") == []
    assert formgrader(klass, "lou", password) == 200
    enrol(klass, "lou")  # says nothing of the role: it stays
    assert groups(klass, "lou") == ["formgrade-llm"]
    enrol(klass, "lou", "--role", "student")
    assert groups(klass, "lou") == ["nbgrader-llm"] and formgrader(klass, "lou", password) == 403
    assert "invalid choice: 'teacher'" in refused(klass, "lou", "--role", "teacher")


def formgrader(klass: RunningClass, name: str, password: str) -> int:
    """The status of formgrader's page for somebody who has just logged in."""
    visitor = Visitor(klass.url)
    assert visitor.log_in(name, password)
    return visitor.knock(FORMGRADER)[0]


def test_what_was_said_while_no_hub_ran_holds_when_one_starts(klass: RunningClass) -> None:
    passwords = klass.passwords | enrol(klass, "mia", "ned", "--role", "instructor")
    klass.stop()
    for words in (["bo", "--remove"], ["mia", "--role", "student"]):
        done = hub_command("enrol", klass.layout.folder, *words)
        assert done.returncode == 0 and "No hub runs" in done.stdout, done.stdout + done.stderr
    again = hub_command("init", klass.root / "class.yaml", "--into", klass.layout.folder)  # which names bo
    assert again.returncode == 0 and printed(again.stdout) == {}, again.stdout + again.stderr
    klass.start()
    assert [groups(klass, name) for name in ("bo", "mia", "ned")] == [None, ["nbgrader-llm"], ["formgrade-llm"]]
    assert not may(klass, "bo", passwords["bo"]) and formgrader(klass, "mia", passwords["mia"]) == 403
    assert formgrader(klass, "ned", passwords["ned"]) == 200
    enrol(klass, "bo")
    assert may(klass, "bo", passwords["bo"])
