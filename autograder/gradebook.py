"""Where a class's marks are kept: a file of SQLite in COURSE_DATA, or a PostgreSQL server that many graders share.

COURSE_DATA/course.toml may name it, as SQLAlchemy writes addresses; without the line it is COURSE_DATA/gradebook.db:

    gradebook = "postgresql+psycopg://grader@db.example.org/llm"

A password never stands there: libpq reads it from ~/.pgpass, or from the file that PGPASSFILE names (mode 600).
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nbgrader.api import Course as CourseRow
from nbgrader.api import Gradebook
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from autograder.course import CLASS_FILE, Course, UserError, class_file, put_programs_on_path

DRIVER = "postgresql+psycopg"
CONNECT_S = "10"
LOCK = 0x6C6C6D  # one of a database's own locks, by number
UNNAMED = ""  # nbgrader's course outside a hub: its labs refer to a row that it never makes, which PostgreSQL minds
_held: set[str] = set()


def address(data: Path) -> str:
    """SQLAlchemy's address of the gradebook of a course-data folder.

    Raises:
        UserError: course.toml cannot be read, or names what cannot be a gradebook.
    """
    named = class_file(data).get("gradebook")
    return of_file(data / "gradebook.db") if named is None else checked(named, str(data / CLASS_FILE))


def of_file(path: Path) -> str:
    """The address of a gradebook that is a file."""
    return f"sqlite:///{path}"


def checked(named: Any, where: str) -> str:
    """An address that somebody gave, made whole; `where` tells them where they gave it.

    Raises:
        UserError: it holds a password, or is no address of SQLite or PostgreSQL.

    Example:
        >>> checked("postgresql://grader@db/llm", "course.toml")
        'postgresql+psycopg://grader@db/llm?connect_timeout=10'
    """
    try:
        url = make_url(named)
    except (ArgumentError, ValueError, AttributeError, TypeError):
        url = URL.create("nothing")
    if url.password or "password" in url.query:
        raise UserError(
            f"The gradebook in {where} holds a password: leave it out, and put it into ~/.pgpass (mode 600)."
        )
    kind = url.drivername.partition("+")[0]
    if kind not in ("sqlite", "postgresql") or not url.database:
        raise UserError(
            f"The gradebook in {where} is {named!r}: give {DRIVER}://USER@HOST/DATABASE, or leave the line out."
        )
    if kind == "postgresql":
        url = url.set(drivername=DRIVER)
        if "connect_timeout" not in url.query:  # a machine that is gone does not answer at all
            url = url.update_query_dict({"connect_timeout": CONNECT_S})
    return url.render_as_string(hide_password=False)


def is_file(url: str) -> bool:
    """Whether a gradebook is a file of SQLite."""
    return url.startswith("sqlite")


def exists(course: Course) -> bool:
    """Whether there is a gradebook to look into; on a server there always is one, if an empty one."""
    url = course.gradebook_url
    return not is_file(url) or Path(make_url(url).database or "").exists()


def named(url: str) -> str:
    """A gradebook as people are told of it: a path, or an address."""
    if is_file(url):
        return str(make_url(url).database)
    plain = make_url(url)
    return plain.set(query={k: v for k, v in plain.query.items() if k != "connect_timeout"}).render_as_string()


def trouble(error: BaseException, url: str) -> str:
    """One sentence for an error of the database or its driver; "" for any other error."""
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg":
        return "A gradebook on PostgreSQL needs psycopg: pip install -e '.[postgresql]'."
    if not isinstance(error, DBAPIError):
        return ""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return not_answering(url, lines[0] if lines else type(error.orig).__name__)


def not_answering(url: str, reason: str) -> str:
    """The sentence for a gradebook that refuses or is gone, and for a file that another program holds."""
    if is_file(url):
        return (f"The gradebook {named(url)} cannot be used now ({reason}): end what else writes it, run this again; "
                "several graders at once are PostgreSQL's business, see deploy/GUIDE.md.")  # fmt: skip
    return (f"The gradebook {named(url)} does not answer ({reason}): see that the server runs and that the password is "
            "in ~/.pgpass (mode 600), then run this again; what was graded is kept.")  # fmt: skip


@contextmanager
def told(url: str) -> Iterator[None]:
    """Turns what the database refuses into a UserError of one sentence."""
    try:
        yield
    except (DBAPIError, ModuleNotFoundError) as error:
        said = trouble(error, url)
        if not said:
            raise
        raise UserError(said) from None


@contextmanager
def alone(url: str, limit_s: float = 300.0) -> Iterator[bool]:
    """Keep other graders out of a step that two must not take at once; whether another was in it before us.

    Held within a process, it is not taken again. Raises UserError when another holds it for `limit_s`.

    Example:
        with alone(course.gradebook_url) as waited:
            if waited: ...                          # what was read before may be old
    """
    if url in _held:
        yield False
        return
    with told(url), _lock_of(url) as take:
        waited = _wait(take, limit_s)
        _held.add(url)
        try:
            yield waited
        finally:
            _held.discard(url)


def _wait(take: Any, limit_s: float) -> bool:
    until, waited = time.monotonic() + limit_s, False
    while not take():
        waited = True
        if time.monotonic() > until:
            raise UserError(f"Another grader has kept the gradebook for {limit_s:g} s: see that it is not stuck.")
        time.sleep(0.1)
    return waited


@contextmanager
def _lock_of(url: str) -> Iterator[Any]:
    """A function that tries to take the gradebook's lock; what it took ends with this, and with the process."""
    if is_file(url):
        with Path(f"{make_url(url).database}.lock").open("a") as file:
            yield lambda: _locked(file)
        return
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield lambda: bool(connection.scalar(text("select pg_try_advisory_lock(:lock)"), {"lock": LOCK}))


def _locked(file: Any) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which children do not inherit
    except (BlockingIOError, PermissionError):
        return False
    return True


def ready(course: Course) -> None:
    """See that the gradebook answers and has its tables: two graders that made them at once would disturb each other.

    Raises:
        UserError: it does not answer.
    """
    enter(course.gradebook_url, [])


def enter(url: str, people: Iterable[dict[str, str]], course_id: str = "default_course") -> None:
    """Enter students, or bring their names up to date: before grading, so that no two graders make the same one.

    people: `{"name": ..., "first_name": ..., ...}`. Raises UserError where the gradebook does not answer.
    """
    put_programs_on_path()
    with alone(url), told(url), Gradebook(url, course_id) as gradebook:
        if gradebook.db.get(CourseRow, UNNAMED) is None:
            gradebook.db.add(CourseRow(id=UNNAMED))
            gradebook.db.commit()
        known = {student.id for student in gradebook.students}
        for person in people:
            about = {key: value for key, value in person.items() if key != "name"}
            if about or person["name"] not in known:
                gradebook.update_or_create_student(person["name"], **about)


def enter_from_stdin() -> int:
    """`hub init` and `hub enrol` run this as the grader: JSON in, one sentence out where it was refused."""
    asked = json.load(sys.stdin)
    try:
        enter(asked["url"], asked["students"], asked["course"])
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
