"""From a lab's text source to the instructor's notebook and the students' release, by nbgrader."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
from nbgrader.converters import GenerateAssignment

from autograder.course import ConverterFailed, Course, UserError, run_converter
from autograder.gradebook import alone, not_answering
from autograder.kept import KEY, Kept, fingerprint, keep
from autograder.scratch import scratch
from autograder.sources.build import notebook_text, write_notebook
from autograder.sources.cells import SourceError

ANSWER_MARKS = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")


def release(course: Course, lab: str) -> Path:
    """Build one lab, note its cells in the gradebook, and write the release; the release's path.

    The result depends on the text source alone: releasing twice gives the same bytes.

    Raises:
        UserError: the source breaks a rule, nbgrader refuses it, or the release would hold an answer.
    """
    course.prepare()
    with alone(course.gradebook_url):
        return _release(course, lab)


def _release(course: Course, lab: str) -> Path:
    try:
        write_notebook(course.solutions / f"{lab}.py")
    except SourceError as error:
        raise UserError(str(error)) from None
    folder = course.releases / lab
    if folder.exists():
        shutil.rmtree(folder)
    try:
        run_converter(GenerateAssignment, course, lab, ".")
    except ConverterFailed as failure:
        raise UserError(_explain(failure, course, lab)) from None
    path = folder / f"{lab}.ipynb"
    refuse_answers(path)
    sign(path, lab)
    keep(course.data, lab, path, course.solutions / lab / f"{lab}.ipynb")
    return path


def sign(path: Path, lab: str) -> None:
    """Note in a release which lab and release it is, so that a submission tells what it was made from."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata[KEY] = {"lab": lab, "release": fingerprint(notebook)}
    path.write_text(notebook_text(notebook), encoding="utf-8")


def register_older(course: Course, lab: str, kept: Kept) -> str:
    """Note the tests of an older release, whose tests or points differ, as an assignment of their own; its name.

    Raises:
        UserError: nbgrader refuses it.
    """
    name = f"{lab}.{kept.id}"
    with scratch("release") as folder:
        source = Path(folder) / "solutions" / name
        source.mkdir(parents=True)
        (source / f"{name}.ipynb").write_text(notebook_text(kept.instructor), encoding="utf-8")
        try:
            run_converter(GenerateAssignment, Course(source.parent, Path(folder) / "labs", course.data), name, ".")
        except ConverterFailed as failure:
            raise UserError(_explain(failure, course, name)) from None
    return name


def release_text(source: Path) -> str:
    """The text of the release that a lab's source makes; touches no release, gradebook or course data."""
    with scratch("release") as folder:
        course = Course(Path(folder) / "solutions", Path(folder) / "labs", Path(folder))
        course.solutions.mkdir()
        shutil.copy(source, course.solutions)
        return release(course, source.stem).read_text(encoding="utf-8")


def refuse_answers(path: Path) -> None:
    """Refuse a release that still holds a solution or a hidden test.

    Raises:
        UserError: names the cell.
    """
    for cell in nbformat.read(path, as_version=4).cells:
        left = [mark for mark in ANSWER_MARKS if mark in cell.source]
        if left:
            path.unlink()
            raise UserError(
                f"Cell {cell.id} of the release still holds {left[0]!r}: "
                "check that each BEGIN has its END in the same cell; nothing was released."
            )


def _explain(failure: ConverterFailed, course: Course, lab: str) -> str:
    if "submissions associated" in failure.log:
        return (
            f"The cells of {lab} have changed since submissions were graded in {course.data}, and nbgrader "
            "cannot mix the two: set COURSE_DATA to a new folder, or undo the change of cell names."
        )
    if failure.of_the_database:
        return not_answering(course.gradebook_url, failure.reason)
    return f"nbgrader could not release {lab}: {failure.reason}."
