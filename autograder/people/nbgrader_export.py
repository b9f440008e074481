"""What `nbgrader export` writes in this course: its own columns, quoted, with a status, and no zero without a grade."""

from __future__ import annotations

from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins.export import ExportPlugin

from autograder.people.export import gradebook_rows, write
from autograder.people.roll import class_in, releases_of


class ExportClass(ExportPlugin):
    """Takes the place of nbgrader's CsvExportPlugin; takes the same --to, --assignment and --student."""

    def export(self, gradebook: Gradebook) -> None:
        """nbgrader calls this with the open gradebook."""
        data = Path(self.parent.coursedir.root)
        students = {str(name) for name in self.student}
        names = [assignment.name for assignment in gradebook.assignments]
        older = {name for lab in names for name in releases_of(lab, names) if name != lab}  # told under their lab
        labs = [name for name in names if name not in older and (not self.assignment or name in self.assignment)]
        rows = gradebook_rows([], "", tests=False)
        for lab in labs:
            entries = [entry for entry in class_in(gradebook, data, lab) if not students or entry.student in students]
            rows += gradebook_rows(entries, lab, tests=False)[1:]
        write(rows, Path(self.to or "grades.csv"))
        self.log.info("Exported %d rows to %s", len(rows) - 1, self.to or "grades.csv")
