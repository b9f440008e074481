"""`python -m autograder gradebook copy FROM TO`: a gradebook row by row, from a file to a server or back.

Read as it stood at one moment, written whole or not at all, and read back and compared before it counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.api import Base, Gradebook
from sqlalchemy import Connection, Table, create_engine, delete, inspect, select, text
from sqlalchemy.pool import NullPool

from autograder.brisk import newest_form
from autograder.course import UserError, put_programs_on_path
from autograder.gradebook import checked, is_file, named, of_file, told

TABLES: list[Table] = list(Base.metadata.sorted_tables)  # each after those that it refers to


def place(given: str) -> str:
    """The address of a gradebook that is given as a path, or as an address."""
    return checked(given, "the command") if "://" in given else of_file(Path(given).expanduser().resolve())


def copy(source: str, target: str) -> dict[str, int]:
    """Copy a gradebook into an empty one; how many rows each of its tables has.

    Raises:
        UserError: there is nothing to copy, it has another version's form, or the target holds something already.
    """
    if is_file(source) and not Path(named(source)).is_file():
        raise UserError(f"There is no gradebook {named(source)}.")
    put_programs_on_path()
    with told(source), create_engine(source, poolclass=NullPool).connect() as here:
        if is_file(source):  # one moment for all tables; SQLite's driver begins with the first change only
            here.exec_driver_sql("BEGIN")
        else:
            here = here.execution_options(isolation_level="REPEATABLE READ")
        _of_this_form(here, source)
        rows = {table: _rows(here, table) for table in TABLES}
    _add_courses(rows)
    with told(target):
        Gradebook(target, "").close()  # makes the tables
        with create_engine(target, poolclass=NullPool).begin() as there:
            _write(there, rows, target)
    return {table.name: len(found) for table, found in rows.items()}


def _of_this_form(here: Connection, source: str) -> None:
    """Refuse a gradebook of another version of nbgrader: its tables have other columns."""
    known = inspect(here).has_table("alembic_version")
    found = here.scalar(text("select version_num from alembic_version")) if known else "none"
    if found != newest_form():
        raise UserError(
            f"The gradebook {named(source)} has the form {found}, this nbgrader's is {newest_form()}: "
            "run `python -m nbgrader db upgrade` on it first."
        )


def _add_courses(rows: dict[Table, list[dict[str, Any]]]) -> None:
    """Add courses that labs refer to and nbgrader never made: a server would refuse the labs."""
    courses = rows[Base.metadata.tables["course"]]
    wanted = {row["course_id"] for row in rows[Base.metadata.tables["assignment"]]} - {row["id"] for row in courses}
    courses += [{"id": name} for name in sorted(wanted)]


def _rows(here: Connection, table: Table) -> list[dict[str, Any]]:
    return [dict(row) for row in here.execute(select(table)).mappings()]


def _write(there: Connection, rows: dict[Table, list[dict[str, Any]]], target: str) -> None:
    full = [table.name for table in TABLES if table.name != "course" and there.execute(select(table).limit(1)).first()]
    if full:
        raise UserError(f"The gradebook {named(target)} holds a class already ({full[0]}): give an empty one.")
    there.execute(delete(Base.metadata.tables["course"]))
    for table, found in rows.items():
        if found:
            there.execute(table.insert(), found)
    for table, found in rows.items():
        if _sorted(_rows(there, table)) != _sorted(found):
            raise UserError(f"{table.name} did not arrive in {named(target)} as it was: nothing was copied.")


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
