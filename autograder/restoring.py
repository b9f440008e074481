"""Our part in nbgrader's first pass over a submission: mend the file, and restore tests without false alarms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.preprocessors import OverwriteCells
from traitlets import Unicode

from autograder.course import Course
from autograder.intake import mend_in_place
from autograder.kept import KEY, give_tests, kept_release


class RestoreCells(OverwriteCells):
    """nbgrader's restoring of read-only cells, from the submission's own release where that is an older one."""

    kept_in = Unicode("", help="The course-data folder, where releases are kept.").tag(config=True)

    def preprocess(self, nb: Any, resources: dict) -> tuple[Any, dict]:
        """nbconvert calls this with the submitted notebook."""
        nb, resources = super().preprocess(nb, resources)
        note = nb.metadata.get(KEY) or {}
        kept = kept_release(Path(self.kept_in), note.get("lab", ""), note.get("release", ""))
        if kept:
            give_tests(nb, kept)
        return nb, resources

    def report_change(self, name: str, attr: str, old: Any, new: Any) -> None:
        """A hidden test changes the checksum of every honest submission, so that alone is nothing to report."""
        if attr != "checksum":
            super().report_change(name, attr, old, new)


def before_autograde(course: Course, assignment: str, student: str, notebooks: list[str]) -> None:
    """nbgrader calls this before it reads a submission: mend it on the spot.

    `nbgrader autograde` and formgrader's button then grade what our own command would; a notebook of another name
    takes the lab's.
    """
    for folder in {Path(notebook).parent for notebook in notebooks}:
        lab, who = folder.name, folder.parent.name
        mend_in_place(course, lab, who)
        mended = folder / f"{lab}.ipynb"
        if mended.is_file():
            notebooks[:] = [str(mended)]
