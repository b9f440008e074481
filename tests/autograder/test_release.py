"""From a text source to the release: no answers, the same bytes each time, clear refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograder.course import REPO, Course, UserError
from autograder.release import refuse_answers, release, release_text

TOY = "lab90_toy"


def test_the_release_holds_no_answer(toy_course: Course) -> None:
    text = (toy_course.releases / TOY / f"{TOY}.ipynb").read_text(encoding="utf-8")
    for secret in ("SOLUTION", "HIDDEN", "isend", "2 * (p - 1)", "secret_run", "count both halves"):
        assert secret not in text
    assert text.count("raise NotImplementedError()") == 2
    assert "the two ranks did not swap their values" in text


def test_the_same_source_gives_the_same_bytes(toy_course: Course, tmp_path: Path) -> None:
    first = (toy_course.releases / TOY / f"{TOY}.ipynb").read_bytes()
    other = Course(toy_course.solutions, tmp_path / "labs", tmp_path / "data")
    assert release(other, TOY).read_bytes() == first
    assert release(other, TOY).read_bytes() == first
    assert release_text(toy_course.solutions / f"{TOY}.py").encode() == first


def test_what_students_may_not_change_is_locked(toy_course: Course) -> None:
    cells = nbformat.read(toy_course.releases / TOY / f"{TOY}.ipynb", as_version=4).cells
    editable = {cell.id: cell.metadata.get("editable", True) for cell in cells if "nbgrader" in cell.metadata}
    assert editable["pass_on"] is True
    assert editable["imports"] is False
    assert editable["steps_value"] is False


def test_it_works_without_the_environments_programs_on_the_path(tmp_path: Path) -> None:
    """nbgrader runs `alembic` by name."""
    shutil.copytree(REPO / "tests" / "toy_lab" / "solutions", tmp_path / "solutions")
    code = (
        "from pathlib import Path; from autograder.course import Course; "
        "from autograder.release import release; "
        f"root = Path({str(tmp_path)!r}); "
        f"print(release(Course(root / 'solutions', root / 'labs', root / 'data'), {TOY!r}))"
    )
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()


def test_a_forgotten_end_is_refused_and_nothing_is_left(toy_course: Course, tmp_path: Path) -> None:
    path = tmp_path / "leaky.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("### END HIDDEN TESTS", id="leak")])
    nbformat.write(notebook, path)
    with pytest.raises(UserError, match=r"Cell leak .* 'END HIDDEN TESTS'"):
        refuse_answers(path)
    assert not path.exists()


def test_a_source_that_breaks_a_rule_is_refused_in_words(toy_course: Course, tmp_path: Path) -> None:
    (tmp_path / "solutions").mkdir()
    source = (toy_course.solutions / f"{TOY}.py").read_text(encoding="utf-8")
    touching = source.replace('"your function changed its input"', 'f"{pass_on} changed its input"')
    (tmp_path / "solutions" / f"{TOY}.py").write_text(touching, encoding="utf-8")
    with pytest.raises(UserError, match="pass_on"):
        release(Course(tmp_path / "solutions", tmp_path / "labs", tmp_path / "data"), TOY)
    assert not (tmp_path / "labs").exists()


@pytest.mark.parametrize(
    "name", ["lab90", TOY, f"labs/{TOY}", f"solutions/{TOY}.py", f"labs/{TOY}/{TOY}.ipynb"]
)
def test_a_lab_is_named_by_number_name_or_path(toy_course: Course, name: str) -> None:
    assert toy_course.lab(name) == TOY


def test_an_unknown_lab_names_those_there_are(toy_course: Course) -> None:
    with pytest.raises(UserError, match=f"'lab9' names 0 labs; the labs are: {TOY}"):
        toy_course.lab("lab9")


def test_course_data_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="set COURSE_DATA"):
        Course(data=tmp_path / "file" / "data").prepare()
