"""Reads what students hand in: finds each student's notebook, mends what is safe, says what it did.

`finding` looks through folders and archives, `names` knows whose a file is, `archives` unpacks, `decoding` and
`reading` make a notebook of a file, `matching` and `repairing` bring the lab's cells back, `beside` looks after
other files, `received` keeps what was sent.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.course import Course, UserError
from autograder.intake.archives import BadArchive, is_archive
from autograder.intake.beside import copy_beside
from autograder.intake.decoding import Unreadable
from autograder.intake.finding import Finder, HandIn
from autograder.intake.reading import grade_id, read_notebook
from autograder.intake.received import forget, is_ours, note_written, original_of, students
from autograder.intake.repairing import repair
from autograder.kept import KEY, Kept, kept_releases, recognise, shape
from autograder.late import read_rules
from autograder.scratch import scratch

__all__ = ["Submission", "collect", "grade_id", "mend_in_place", "read_notebook"]

MOST_NOTES = 20


@dataclass
class Submission:
    """One student's hand-in. problem is empty when it can be graded, else one sentence why not.

    `release` is the kept release whose tests it gets, None for the newest; `assignment` is what the gradebook calls
    the lab in that release. `platform` is the student's number on a learning platform, such as "canvas 340934".
    """

    student: str
    source: Path | None
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    release: Kept | None = None
    assignment: str = ""
    platform: str = ""
    when: datetime | None = None


def collect(place: Path, lab: str, course: Course, newest_tests: bool = False) -> list[Submission]:
    """Find the submissions of a lab and put readable ones into the course's submitted/ tree.

    Args:
        place: nbgrader's submitted tree (STUDENT/LAB/LAB.ipynb), a folder with one folder for each student, a
            folder of notebooks named after the students, or an archive from Canvas or Moodle.
        newest_tests: grade hand-ins of older releases by the newest tests too, in place of their own.

    Raises:
        UserError: there is no such place, it cannot be opened, or it holds no submission.

    Example:
        collect(Path("submissions.zip"), "lab01_allreduce", Course.default())[0].notes
    """
    release = nbformat.read(course.releases / lab / f"{lab}.ipynb", as_version=4)
    intake = _Intake(course, lab, release, [] if newest_tests else _kept(course, lab, release))
    with scratch("intake", course.data) as folder:
        if place.resolve() == (course.data / "submitted").resolve():
            found = intake.found_in_place(folder)
        else:
            found = intake.found(place, folder)
        if not found:
            raise UserError(f"{place} holds no submission: expected STUDENT/{lab}/{lab}.ipynb or STUDENT.ipynb.")
        return [intake.take_in(hand_in) for hand_in in found]


def mend_in_place(course: Course, lab: str, student: str) -> None:
    """Read and mend one hand-in in submitted/, unless that was done: for nbgrader's own commands and formgrader."""
    if is_ours(course.data, student, lab) or not (course.releases / lab / f"{lab}.ipynb").is_file():
        return
    release = nbformat.read(course.releases / lab / f"{lab}.ipynb", as_version=4)
    intake = _Intake(course, lab, release, _kept(course, lab, release))
    with scratch("intake", course.data) as folder:
        for hand_in in intake.found_in_place(folder, [student]):
            intake.take_in(hand_in)


def _kept(course: Course, lab: str, release: NotebookNode) -> list[Kept]:
    """The kept releases, the present one first: where two fit a hand-in alike, it gets the present one's tests."""
    own = (release.metadata.get(KEY) or {}).get("release")
    return sorted(kept_releases(course.data, lab), key=lambda kept: kept.id != own)


@dataclass
class _Intake:
    course: Course
    lab: str
    release: NotebookNode
    kept: list[Kept]

    def finder(self, scratch: str) -> Finder:
        tasks = {grade_id(cell) for cell in self.release.cells if cell.metadata.get("nbgrader", {}).get("solution")}
        return Finder(self.lab, tasks, Path(scratch), read_rules(self.course.data).told)

    def found(self, place: Path, scratch: str) -> list[HandIn]:
        """The hand-ins at a place outside the course's own tree."""
        if not place.is_dir() and not (place.is_file() and is_archive(place)):
            raise UserError(f"{place} is not a folder or a zip or tar archive: give what holds the submissions.")
        try:
            found = self.finder(scratch).find(place)
        except BadArchive as error:
            raise UserError(str(error)) from None
        for hand_in in found:
            forget(self.course.data, hand_in.student, self.lab)
        return found

    def found_in_place(self, scratch: str, who: list[str] | None = None) -> list[HandIn]:
        """The hand-ins in submitted/, each as it was sent."""
        finder, found = self.finder(scratch), []
        for student in who or students(self.course.data, self.lab):
            folder, notes = original_of(self.course.data, student, self.lab)
            for hand_in in finder.in_student(student, folder):
                hand_in.notes = notes + hand_in.notes
                found.append(hand_in)
        return found

    def take_in(self, hand_in: HandIn) -> Submission:
        """Read, mend and place one hand-in; whatever is wrong with it becomes its problem, never an error."""
        submission = Submission(hand_in.student, hand_in.notebook, hand_in.notes, hand_in.problem)
        submission.platform, submission.when, submission.assignment = hand_in.platform, hand_in.when, self.lab
        try:
            if not submission.problem:
                self._place(hand_in, self._mended(submission), submission)
        except Unreadable as error:
            submission.problem = str(error)
        except OSError as error:
            submission.problem = f"The hand-in cannot be read: {error.strerror}."
        except Exception as error:  # whatever else is odd in it must not stop the class
            submission.problem = f"The hand-in cannot be read ({type(error).__name__}: {str(error).splitlines()[:1]})."
        if submission.problem and not hand_in.folder.is_relative_to(self.course.data / "received"):
            self._clear(submission)
        if hand_in.marked_late and hand_in.when is None:
            submission.notes.append("the platform marks it as late and not by how much, so no penalty was reckoned")
        submission.notes = _fewer(submission.notes)
        if not submission.problem:
            note_written(self.course.data, submission.student, submission.assignment, submission.notes)
        return submission

    def _mended(self, submission: Submission) -> NotebookNode:
        notebook, notes = read_notebook(submission.source, self.release)
        known = recognise(notebook, self.kept)
        submission.notes += notes + self._of_release(notebook, known, submission)
        release = submission.release.release if submission.release else self.release
        submission.notes += repair(notebook, release)
        return notebook

    def _of_release(self, notebook: NotebookNode, known: Kept | None, submission: Submission) -> list[str]:
        """Say which release's tests a hand-in gets, where these are not the newest."""
        own = (self.release.metadata.get(KEY) or {}).get("release")
        if known is None or known.id == own:
            return []
        submission.release = known
        if shape(known.release) != shape(self.release):
            submission.assignment = f"{self.lab}.{known.id}"  # the gradebook has one set of tests for each name
        named = notebook.metadata.get(KEY)
        sure = isinstance(named, dict) and named.get("release") == known.id
        made = known.made.astimezone(read_rules(self.course.data).time_zone)
        how = "it was made from" if sure else "it fits best"
        return [
            f"{how} an older release of the lab, {known.id} of {made:%Y-%m-%d}, "
            "and was graded by that release's own tests"
        ]

    def _place(self, hand_in: HandIn, notebook: NotebookNode, submission: Submission) -> None:
        target = self._target(submission)
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch(".part", target.parent) as part:
            new = Path(part) / "new"
            new.mkdir()
            submission.notes += copy_beside(hand_in.files, new)
            (new / f"{submission.assignment}.ipynb").write_text(nbformat.v4.writes(notebook) + "\n", encoding="utf-8")
            if hand_in.when:
                stamp = f"{hand_in.when:%Y-%m-%d %H:%M:%S.%f} UTC\n"
                (new / "timestamp.txt").write_text(stamp, encoding="utf-8")
            self._clear(submission)
            new.replace(target)

    def _target(self, submission: Submission) -> Path:
        return self.course.data / "submitted" / submission.student / submission.assignment

    def _clear(self, submission: Submission) -> None:
        """Take away what an earlier run left of this student's work on the lab, in whichever release."""
        folder = self.course.data / "submitted" / submission.student
        for old in folder.glob(f"{self.lab}*"):
            if old.name == self.lab or old.name.startswith(f"{self.lab}."):
                shutil.rmtree(old, ignore_errors=True)


def _fewer(notes: list[str]) -> list[str]:
    """Each note once, and not more than can be read."""
    notes = list(dict.fromkeys(notes))
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more things like these"]
    return notes
