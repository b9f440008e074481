"""Feedback pages for students, by nbgrader's own converter: what each test found, and the student's own cells.

`FeedbackExporter` takes the place of nbgrader's exporter in the course's configuration, so `nbgrader
generate_feedback` and formgrader's button write the same page as our command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbconvert.exporters import Exporter
from nbgrader.converters import GenerateFeedback
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade

from autograder.course import Course, run_converter
from autograder.hidden import scrub
from autograder.people.page import page_of, unreadable_page
from autograder.people.pages import render
from autograder.results import Result, load
from autograder.sources.regions import without_hidden

TEMPLATE = "feedback.html.j2"


class HideTests(NbGraderPreprocessor):
    """Takes the hidden part out of each test cell before the feedback page is made."""

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        """nbconvert calls this for each cell; what the message quotes of that part goes as well."""
        if is_grade(cell):
            grading = cell.metadata.get("grading", {})
            grading["message"] = scrub(grading.get("message", ""), cell.source)
            cell.source = without_hidden(cell.source)
        return cell, resources


class FeedbackExporter(Exporter):
    """Writes the feedback page of a graded notebook."""

    file_extension = ".html"
    output_mimetype = "text/html"

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> tuple[str, Any]:
        """nbconvert calls this; `resources` says whose notebook it is and what the gradebook knows."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        about = resources["nbgrader"]
        lab, student = about["assignment"], about["student"]
        data = Path(self.config.CourseDirectory.root or ".")
        penalty = float(about.get("late_penalty") or 0)
        page = page_of(nb, lab, student, load(data, lab, student), penalty)
        return render(TEMPLATE, page=page), resources


def write_feedback(course: Course, lab: str, student: str) -> Path:
    """Write the feedback page of one graded submission; its path.

    Raises:
        ConverterFailed: nbgrader could not make the page.
    """
    run_converter(GenerateFeedback, course, lab, student)
    return feedback_path(course, lab, student)


def write_unreadable(course: Course, lab: str, result: Result) -> Path:
    """Write the page of a submission that has no grade: why, and what to do; its path."""
    path = feedback_path(course, lab, result.student)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(TEMPLATE, page=unreadable_page(lab, result)), encoding="utf-8")
    return path


def feedback_path(course: Course, lab: str, student: str) -> Path:
    """Where a student's feedback page is."""
    return course.data / "feedback" / student / lab / f"{lab}.html"
