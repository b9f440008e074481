"""nbgrader without what it does anew each time: the same gradebook, the same refusals, less work."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import jsonschema
import pytest
from nbgrader import api
from nbgrader.api import Gradebook
from nbgrader.nbgraderformat import MetadataValidator, common

from autograder.brisk import brisk, newest_form, validate
from autograder.course import put_programs_on_path

CELL = {"grade_id": "a", "grade": True, "solution": False, "locked": True, "schema_version": 3, "points": 1}


def test_the_form_of_a_new_gradebook_is_the_one_that_alembic_names() -> None:
    put_programs_on_path()
    assert newest_form() == api.get_alembic_version()


def test_gradebooks_share_an_engine_and_no_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    made = []
    inner = api.create_engine
    with patch.object(api, "create_engine", lambda *args, **options: made.append(args) or inner(*args, **options)):
        with brisk():
            with Gradebook(url) as outer:
                ann = outer.add_student("ann", first_name="Ann")
                with Gradebook(url) as other:
                    other.find_student("ann").first_name = "Anna"
                    other.db.commit()
                    other.add_student("bo")
                outer.db.refresh(ann)
                assert (ann.first_name, len(outer.students)) == ("Anna", 2)
            with Gradebook(url) as later:
                later.find_student("ann").first_name = "never committed"
            with Gradebook(url) as last:
                assert last.find_student("ann").first_name == "Anna"
        assert len(made) == 1
    with Gradebook(url) as plain:  # what was written is a gradebook of nbgrader's
        assert {student.id for student in plain.students} == {"ann", "bo"} and plain.engine is not outer.engine


def test_cells_are_refused_for_the_same_reasons() -> None:
    schema = MetadataValidator().schema
    for change in ({}, {"points": "many"}, {"grade": 1}, {"surplus": 1}, {"schema_version": None}):
        told = []
        for check in (validate, jsonschema.validate):
            try:
                told.append(check(CELL | change, schema))
            except jsonschema.ValidationError as error:
                told.append((error.message, list(error.path)))
        assert told[0] == told[1]


def test_all_is_as_before_afterwards() -> None:
    before = Gradebook.__init__, Gradebook.close, api.get_alembic_version, common.jsonschema
    with pytest.raises(KeyError), brisk():
        assert Gradebook.__init__ is not before[0]
        raise KeyError
    assert (Gradebook.__init__, Gradebook.close, api.get_alembic_version, common.jsonschema) == before
