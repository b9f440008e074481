"""nbgrader's own work on a class without what it does anew for each cell and student.

nbgrader opens the gradebook eight times a submission, and each time makes an SQLAlchemy engine, compiles every query
for it, and asks whether all tables are there. It also checks its own schema of cells before it checks a cell by it, and
starts a program for the number of a new gradebook's form, which leaves a folder behind when it is killed. Here an
engine is made once for a gradebook, a schema is checked once, and the number is read. What nbgrader reads, decides and
writes is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jsonschema
from alembic.script import ScriptDirectory
from jsonschema.exceptions import best_match
from nbgrader import api, dbutil
from nbgrader.api import Gradebook
from nbgrader.nbgraderformat import common
from sqlalchemy.orm import scoped_session, sessionmaker


@contextmanager
def brisk() -> Iterator[None]:
    """While this holds, all gradebooks of one address share an engine; each still has a session of its own.

    Example:
        with brisk():
            for student in students:
                run_converter(Autograde, course, lab, student)      # 0.2 s each, not 0.4
    """
    engines: dict[tuple[str, str], Any] = {}
    first = api.Gradebook.__init__

    def opened(self: Any, db_url: str, course_id: str = "default_course", authenticator: Any = None) -> None:
        if (db_url, course_id) not in engines:
            first(self, db_url, course_id, authenticator)
            engines[db_url, course_id] = self.engine
            return
        self.engine, self.course_id, self.authenticator = engines[db_url, course_id], course_id, authenticator
        self.db = scoped_session(sessionmaker(autoflush=True, bind=self.engine, future=True))

    def closed(self: Any) -> None:
        self.db.remove()  # rolls back, and gives the connection to the next

    quick = SimpleNamespace(**vars(jsonschema) | {"validate": validate})
    with patch.object(Gradebook, "__init__", opened), patch.object(Gradebook, "close", closed):
        try:
            with patch.object(common, "jsonschema", quick), patch.object(api, "get_alembic_version", newest_form):
                yield
        finally:
            for engine in engines.values():
                engine.dispose()


@lru_cache(maxsize=1)
def newest_form() -> str:
    """The number of the newest form of gradebooks, which `alembic heads` tells too.

    Example:
        newest_form()                           # 'e43177bfe90b'
    """
    return str(ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head())


def validate(instance: Any, schema: Mapping[str, Any]) -> None:
    """`jsonschema.validate`, which checks each schema once only. Raises jsonschema.ValidationError."""
    error = best_match(_validator(json.dumps(schema, sort_keys=True)).iter_errors(instance))
    if error is not None:
        raise error


@lru_cache(maxsize=8)
def _validator(schema: str) -> Any:
    told = json.loads(schema)
    kind = jsonschema.validators.validator_for(told)
    kind.check_schema(told)
    return kind(told)
