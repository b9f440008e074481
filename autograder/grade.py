"""Grades a class: intake, execution of many submissions at once, scoring by nbgrader one after the other."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde
from tqdm import tqdm

from autograder import runs
from autograder.ahead import run_ahead
from autograder.brisk import brisk
from autograder.course import ConverterFailed, Course, UserError, run_converter
from autograder.execute import progress
from autograder.feedback import write_feedback, write_unreadable
from autograder.gradebook import alone, enter, not_answering, ready, told
from autograder.intake import Submission, collect
from autograder.late import lateness, read_rules, set_deadline, set_moment
from autograder.pool import jobs_here, warm_up
from autograder.release import register_older, release
from autograder.results import Result, TestResult, save
from autograder.sandbox import why_not
from autograder.scored import Scored
from autograder.versions import keep_version


def grade(
    course: Course,
    lab: str,
    submissions: Path,
    newest_tests: bool = False,
    jobs: int | None = None,
    runner: Callable[[list[Submission]], Iterator[Submission]] | None = None,
) -> list[Result]:
    """Grade every submission found in a folder or archive; one bad submission never stops the others.

    The gradebook, autograded notebooks and feedback pages are left in the course-data folder; the
    repository's own release of the lab is not touched. A submission of an older release gets that release's own
    tests, unless `newest_tests` says otherwise. `jobs` submissions run at once; None: what cores and memory bear.
    `runner` makes the runs elsewhere, and yields each submission when its run is kept. Who was graded from the same
    before is not graded again.

    Raises:
        UserError: the lab cannot be built, the folder holds no submission, or there is no sandbox.
    """
    need_sandbox(course)
    private = replace(course, releases=course.data / "release")
    private.prepare()
    with told(private.gradebook_url), runs.at_work(private.data), brisk():
        ready(private)
        return _grade(private, lab, submissions, newest_tests, jobs, runner)


def _grade(
    private: Course,
    lab: str,
    submissions: Path,
    newest_tests: bool,
    jobs: int | None,
    runner: Callable[[list[Submission]], Iterator[Submission]] | None,
) -> list[Result]:
    scored = Scored(private, lab, submissions, newest_tests)
    if runner is None and scored.found() is None:
        warm_up(private.sandbox)
    found = _found(private, lab, submissions, newest_tests, scored)
    results = {one.student: result for one in found if (result := scored.still(one))}
    left = [one for one in found if one.student not in results]
    with tqdm(found, initial=len(results), unit="submission", desc=lab) as bar, _showing_cells(bar):
        for submission in _in_turn(left, runner or partial(run_ahead, private, jobs=jobs or jobs_here())):
            bar.set_postfix_str(submission.student, refresh=sys.stderr.isatty())
            results[submission.student] = grade_one(private, lab, submission)
            scored.note([submission])
            bar.update()
    ordered = [results[submission.student] for submission in found]
    keep_version(private, lab, ordered)
    return ordered


def _found(course: Course, lab: str, place: Path, newest_tests: bool, scored: Scored) -> list[Submission]:
    """Release the lab and take the class's hand-ins in, as far as that was not done before."""
    with alone(course.gradebook_url) as waited:
        if waited:
            scored.refresh()
        fresh = scored.released()
        if not fresh:
            release(course, lab)
            scored.refresh()
            scored.note_released()
    found = scored.found()
    if found is None:
        found = collect(place, lab, course, newest_tests)
        scored.note_found(found)
    older = {one.release.id: one.release for one in found if one.assignment != lab and one.release}
    with alone(course.gradebook_url):
        if not fresh or not scored.has(f"{lab}.{name}" for name in older):
            for release_ in older.values():
                register_older(course, lab, release_)
        set_deadline(course, lab, read_rules(course.data))
        scored.note_released()
        enter(course.gradebook_url, [{"name": one.student} for one in found if not one.problem])
    return found


def need_sandbox(course: Course) -> None:
    """Refuse to run students' code where the chosen sandbox cannot be had. Raises UserError with what to do."""
    reason = why_not(course.sandbox)
    if reason:
        raise UserError(reason)


def _in_turn(
    found: list[Submission], runner: Callable[[list[Submission]], Iterator[Submission]]
) -> Iterator[Submission]:
    """The submissions as they become ready to be scored: unreadable ones first, the others as their runs are done."""
    yield from (one for one in found if one.problem)
    yield from runner([one for one in found if not one.problem])


def grade_one(course: Course, lab: str, submission: Submission) -> Result:
    """Grade one submission that intake has put into the submitted/ tree."""
    if submission.problem:
        return _unreadable(course, lab, submission)
    forget_other_releases(course, lab, submission)
    try:
        rules = read_rules(course.data)
        set_moment(course, submission.assignment, submission.student, submission.when, rules)
        run_converter(Autograde, course, submission.assignment, submission.student)
        result = read_result(course, submission)
        for name in {lab, submission.assignment}:
            save(course, name, result)  # the feedback page takes its notes from there
        result.feedback = write_feedback(course, submission.assignment, submission.student)
    except ConverterFailed as failure:
        if failure.of_the_database:
            raise UserError(not_answering(course.gradebook_url, failure.reason)) from None
        submission.problem = f"nbgrader could not grade it: {failure.reason}."
        return _unreadable(course, lab, submission)
    return result


def read_result(course: Course, submission: Submission) -> Result:
    """What the gradebook and the autograded notebook say of one submission."""
    student, lab = submission.student, submission.assignment
    notebook = nbformat.read(course.data / "autograded" / student / lab / f"{lab}.ipynb", as_version=4)
    outcomes = {
        cell.metadata.nbgrader.grade_id: cell.metadata.grading
        for cell in notebook.cells
        if "grading" in cell.metadata and "nbgrader" in cell.metadata
    }
    with Gradebook(course.gradebook_url) as gradebook:
        graded = gradebook.find_submission_notebook(lab, lab, student)
        points = {grade.name: (float(grade.score), float(grade.max_score)) for grade in graded.grades}
    tests = [
        TestResult(name, *points[name], outcomes[name]["status"], outcomes[name]["message"])
        for name in outcomes
        if name in points
    ]
    whole = all(test.status != "not run" for test in tests)
    penalty, late = lateness(course, lab, student, read_rules(course.data))
    return Result(
        student,
        "graded" if whole else "partly graded",
        sum(test.points for test in tests) - penalty,
        sum(test.max_points for test in tests),
        submission.notes + late + list(notebook.metadata.grading.notes),
        tests,
        list(notebook.metadata.grading.get("flags", [])),
        notebook.metadata.grading.get("isolation", ""),
        submission.platform,
    )


def forget_other_releases(course: Course, lab: str, submission: Submission) -> None:
    """Take away what stands under another release of the lab for this student: a hand-in counts once."""
    with Gradebook(course.gradebook_url) as gradebook:
        names = [one.name for one in gradebook.assignments if one.name == lab or one.name.startswith(f"{lab}.")]
        for name in names:
            if name != submission.assignment:
                _forget(course, gradebook, name, submission.student)


def _forget(course: Course, gradebook: Gradebook, assignment: str, student: str) -> None:
    for step in ("autograded", "feedback"):
        shutil.rmtree(course.data / step / student / assignment, ignore_errors=True)
    with contextlib.suppress(MissingEntry):
        gradebook.remove_submission(assignment, student)


def _unreadable(course: Course, lab: str, submission: Submission) -> Result:
    """Nothing is recorded as a grade, and what an earlier run left for this student goes."""
    forget_other_releases(course, lab, submission)
    with Gradebook(course.gradebook_url) as gradebook:
        _forget(course, gradebook, lab, submission.student)
        highest = float(gradebook.find_assignment(lab).max_score)
    result = Result(submission.student, "unreadable", 0.0, highest, [submission.problem, *submission.notes], [])
    result.platform = submission.platform
    save(course, lab, result)
    result.feedback = write_unreadable(course, lab, result)
    return result


class _showing_cells(logging.Handler):
    """Shows the name of the running cell behind the progress bar, while it is a context manager."""

    def __init__(self, bar: tqdm) -> None:
        super().__init__()
        self.bar = bar

    def emit(self, log: logging.LogRecord) -> None:
        student = (self.bar.postfix or "").split(" at ")[0]
        # A log file would get a line for each cell; there the bar moves on with each submission.
        self.bar.set_postfix_str(f"{student} at {log.getMessage()}", refresh=sys.stderr.isatty())

    def __enter__(self) -> None:
        progress.setLevel(logging.INFO)
        progress.propagate = False
        progress.addHandler(self)

    def __exit__(self, *_: object) -> None:
        progress.removeHandler(self)
