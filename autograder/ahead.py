"""Runs a class's submissions ahead of nbgrader, many at once: when it comes to score one, the run is there already.

What will run is found as nbgrader finds it, by its own first pass over the file: outputs cleared, read-only cells and
tests restored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import nbformat

from autograder import worker
from autograder.course import Course, nbgrader_config
from autograder.execute import ExecuteSubmission
from autograder.idle import released_texts
from autograder.intake import Submission
from autograder.pool import Task, run_all
from autograder.restoring import before_autograde

log = logging.getLogger("autograder")


def run_ahead(course: Course, submissions: list[Submission], jobs: int) -> Iterator[Submission]:
    """Run the submissions, `jobs` at once, and yield each when its run is kept, or could not be made ahead."""
    made, tasks = make_tasks(course, submissions)
    yield from (one for one in submissions if one.student not in tasks)
    by_lab: dict[worker.Terms, list[Task]] = {}
    for _, task, terms in made:
        by_lab.setdefault(terms, []).append(task)
    for terms, group in by_lab.items():
        for task, error in run_all(group, course.data, terms, jobs):
            if error:
                log.debug("%s was not run ahead: %s", task.student, error)
            yield tasks[task.student]


def make_tasks(
    course: Course, submissions: list[Submission]
) -> tuple[list[tuple[Submission, Task, worker.Terms]], dict[str, Submission]]:
    """What is to be run of submissions and how, and who they are of; one that nbgrader cannot read is left out."""
    made = []
    for submission in submissions:
        try:
            made.append((submission, _task(course, submission), _executor(course).terms(submission.assignment)))
        except Exception as error:  # nbgrader will meet it again, and its words go into the report
            log.debug("%s cannot be run ahead: %s", submission.student, error)
    return made, {submission.student: submission for submission, _, _ in made}


def _executor(course: Course) -> ExecuteSubmission:
    return ExecuteSubmission(config=nbgrader_config(course))


def _task(course: Course, submission: Submission) -> Task:
    folder = course.data / "submitted" / submission.student / submission.assignment
    path = str(folder / f"{submission.assignment}.ipynb")
    before_autograde(course, submission.assignment, submission.student, [path])
    cells = restored(course, submission.assignment, submission.student, nbformat.read(path, as_version=4)).cells
    released = released_texts(course.data, submission.assignment)
    return Task(submission.student, worker.plain_cells(cells, released), folder)


def restored(course: Course, lab: str, student: str, notebook: Any) -> Any:
    """A submitted notebook after nbgrader's first pass."""
    config = nbgrader_config(course)
    about = {"student": student, "assignment": lab, "notebook": lab, "db_url": course.gradebook_url}
    resources: dict[str, Any] = {"nbgrader": about, "unique_key": lab, "metadata": {}}
    for kind in config.Autograde.sanitize_preprocessors:
        step = kind(config=config)
        step.log.setLevel(logging.ERROR)
        notebook, resources = step.preprocess(notebook, resources)
    return notebook
