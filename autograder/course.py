"""Where the course's files are, and how nbgrader is told so.

Sources and releases lie in the repository; the gradebook and all that students hand in lie in the course-data
folder outside git: the environment variable COURSE_DATA, else `course_data/` (which git ignores). The gradebook
may be on a PostgreSQL server instead: autograder/gradebook.py.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tomllib
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from traitlets.config import Config

REPO = Path(__file__).resolve().parent.parent
CLASS_FILE = "course.toml"  # in the course-data folder: deadlines, late days (late.py), the gradebook (gradebook.py)


class UserError(Exception):
    """Something the person at the keyboard can mend; the text is one sentence that says what and how."""


def class_file(data: Path) -> dict[str, Any]:
    """What stands in a course-data folder's course.toml; nothing where there is none.

    Raises:
        UserError: it cannot be read.
    """
    path = data / CLASS_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: {error}.") from None


@dataclass(frozen=True)
class Course:
    """The folders of one course.

    solutions and releases hold `labNN_topic/labNN_topic.ipynb`; data holds gradebook.db, submitted/,
    autograded/ and feedback/, each with `STUDENT/LAB/`. sandbox: the kind that submissions run in.

    Example:
        course = Course.default()
        course.lab("lab01")                              # 'lab01_allreduce'
    """

    solutions: Path = REPO / "solutions"
    releases: Path = REPO / "labs"
    data: Path = REPO / "course_data"
    sandbox: str = "bubblewrap"

    @classmethod
    def default(cls) -> Course:
        """The repository's course, with COURSE_DATA where it is set."""
        data = os.environ.get("COURSE_DATA")
        return cls(data=Path(data).expanduser().resolve()) if data else cls()

    def with_data(self, data: Path) -> Course:
        """The same course with another course-data folder."""
        return replace(self, data=data.resolve())

    def labs(self) -> list[str]:
        """Names of all labs that have a text source, in order."""
        return sorted(path.stem for path in self.solutions.glob("lab*.py"))

    def lab(self, name: str) -> str:
        """The full name of a lab, from its number, its name, or a path of it.

        Raises:
            UserError: no lab or several labs fit.
        """
        wanted = Path(name.rstrip("/")).stem
        fits = [lab for lab in self.labs() if lab == wanted or lab.startswith(wanted + "_")]
        if len(fits) == 1:
            return fits[0]
        known = ", ".join(self.labs()) or f"none under {self.solutions}"
        raise UserError(f"{name!r} names {len(fits)} labs; the labs are: {known}.")

    @property
    def gradebook_url(self) -> str:
        """SQLAlchemy address of the gradebook: a file of the course-data folder, or what its course.toml names."""
        from autograder.gradebook import address  # which imports this module, and nbgrader

        return address(self.data)

    def prepare(self) -> None:
        """Make the course-data folder.

        Raises:
            UserError: it cannot be written.
        """
        try:
            self.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"The course-data folder {self.data} cannot be made ({error.strerror}): "
                "set COURSE_DATA to a folder that you can write."
            ) from None
        if not os.access(self.data, os.W_OK):
            raise UserError(
                f"The course-data folder {self.data} cannot be written: set COURSE_DATA to another."
            )


def nbgrader_config(course: Course) -> Config:
    """nbgrader's settings for this course: its folders, our way of running cells, and what feedback shows."""
    from nbconvert.preprocessors import ClearMetadataPreprocessor
    from nbgrader.preprocessors import (
        AssignLatePenalties,
        CheckCellMetadata,
        ClearOutput,
        DeduplicateIds,
        GetGrades,
        IgnorePattern,
        LimitOutput,
        OverwriteKernelspec,
        SaveAutoGrades,
    )

    from autograder.execute import ExecuteSubmission
    from autograder.feedback import FeedbackExporter, HideTests
    from autograder.late import LatePenalty, read_rules
    from autograder.people.nbgrader_export import ExportClass
    from autograder.restoring import RestoreCells, before_autograde

    rules = read_rules(course.data)
    config = Config()
    config.CourseDirectory.root = str(course.data)
    config.CourseDirectory.db_url = course.gradebook_url
    config.CourseDirectory.source_directory = str(course.solutions)
    config.CourseDirectory.release_directory = str(course.releases)
    config.Autograde.autograde_preprocessors = [
        ExecuteSubmission,
        IgnorePattern,
        ClearMetadataPreprocessor,
        LimitOutput,
        SaveAutoGrades,
        AssignLatePenalties,
        CheckCellMetadata,
    ]
    config.ExecuteSubmission.sandbox = course.sandbox
    config.ExecuteSubmission.runs_in = str(course.data)
    config.Autograde.pre_convert_hook = partial(before_autograde, course)
    config.Autograde.sanitize_preprocessors = [
        ClearOutput,
        DeduplicateIds,
        OverwriteKernelspec,
        RestoreCells,
        CheckCellMetadata,
    ]
    config.RestoreCells.add_missing_cells = True
    config.RestoreCells.kept_in = str(course.data)
    config.AssignLatePenalties.plugin_class = LatePenalty
    config.LatePenalty.penalty_method = rules.method
    config.LatePenalty.percent = rules.percent
    config.LatePenalty.grace_minutes = rules.grace_minutes
    config.GenerateFeedback.exporter_class = FeedbackExporter
    config.GenerateFeedback.preprocessors = [HideTests, GetGrades]
    config.ExportApp.plugin_class = ExportClass
    return config


def put_programs_on_path() -> None:
    """nbgrader runs `alembic` by its name: it lies beside this Python, whether or not PATH says so."""
    programs = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    if programs not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, path]) if path else programs


def run_converter(converter_class: type, course: Course, lab: str, student: str = "*") -> str:
    """Run one of nbgrader's converters for one lab (and student); returns its log.

    Raises:
        ConverterFailed: the converter failed; carries nbgrader's log.
    """
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.utils import capture_log
    from sqlalchemy.exc import SAWarning

    put_programs_on_path()
    config = nbgrader_config(course)
    coursedir = CourseDirectory(config=config)
    coursedir.assignment_id, coursedir.student_id = lab, student
    converter = converter_class(coursedir=coursedir, config=config)
    converter.force = True
    converter.log.setLevel(logging.INFO)
    converter.log.propagate = False
    with warnings.catch_warnings():
        # nbgrader 0.9.6 meets these of SQLAlchemy in every run; its grades are right all the same.
        warnings.simplefilter("ignore", SAWarning)
        result = capture_log(converter)
    if result.get("error", "").rstrip().endswith("KeyboardInterrupt"):
        raise KeyboardInterrupt
    if not result["success"]:
        raise ConverterFailed(result.get("log", ""), result.get("error", ""))
    return result.get("log", "")


class ConverterFailed(Exception):
    """A converter of nbgrader failed; `reason` is the last exception in its log."""

    def __init__(self, log: str, error: str) -> None:
        text = "\n".join(line for line in (log + "\n" + error).splitlines() if line.strip())
        self.log = text
        reasons = re.findall(r"^\s*(?:\w+\.)*([A-Z]\w+: .+)$", text, re.MULTILINE)
        useful = [reason for reason in reasons if not reason.startswith("NbGraderException: Please see")]
        self.reason = useful[-1] if useful else "nbgrader gave no reason"
        super().__init__(self.reason)

    @property
    def of_the_database(self) -> bool:
        """Whether the gradebook was lost, locked or refused: nothing is then known of the submission."""
        return re.search(r"\((?:psycopg|sqlite3)\.", self.reason) is not None
