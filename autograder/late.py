"""Deadlines, lateness and penalties, through nbgrader's own late-submission plugin.

The class's rules stand in COURSE_DATA/course.toml, every part of which may be missing:

    time_zone = "Asia/Shanghai"                # how times are told and deadlines are meant; UTC without it

    [late]
    method = "percent_per_day"                 # none (the default), zero, percent_per_day
    percent = 10                               # of the score, for each day begun
    grace_minutes = 15                         # not counted, and no penalty within them

    [deadlines]
    lab01_allreduce = 2026-03-02T23:59:00

    [extensions.lab01_allreduce]               # days more, from the deadline on; not added to one another
    ada = 2
    "O'Neil, Ann" = 0.5

`gradebook` may stand there too: autograder/gradebook.py.

A deadline that is set here wins over one that was set in formgrader, and an extension over one in the gradebook.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Enum, Float

from autograder.course import CLASS_FILE, Course, UserError, class_file

METHODS = ("none", "zero", "percent_per_day")


@dataclass(frozen=True)
class Rules:
    """A class's rules; deadlines are moments in UTC."""

    time_zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    method: str = "none"
    percent: float = 10.0
    grace_minutes: float = 0.0
    deadlines: dict[str, datetime] = field(default_factory=dict)
    extensions: dict[str, dict[str, timedelta]] = field(default_factory=dict)

    def extension(self, assignment: str, student: str) -> timedelta | None:
        """What a student has more than the others; None where nothing is said of them."""
        lab = assignment.split(".")[0]
        given = [self.extensions[name] for name in (lab, lab.split("_")[0]) if name in self.extensions]
        return next((days[student] for days in given if student in days), None)

    def told(self, moment: datetime) -> str:
        """A moment in the class's time, e.g. `2026-03-02 23:59 (Asia/Shanghai)`."""
        return f"{moment.astimezone(self.time_zone):%Y-%m-%d %H:%M} ({self.time_zone.key})"


def read_rules(data: Path) -> Rules:
    """The rules in a course-data folder.

    Raises:
        UserError: names the entry that cannot be used.
    """
    try:
        return _rules(class_file(data))
    except ValueError as error:
        raise UserError(f"{data / CLASS_FILE}: {error}.") from None


def _rules(text: dict[str, Any]) -> Rules:
    late = text.get("late", {})
    _refuse_unknown(text, ("time_zone", "gradebook", "late", "deadlines", "extensions"), "an entry")
    _refuse_unknown(late, ("method", "percent", "grace_minutes"), "an entry of [late]")
    zone = _zone(text.get("time_zone", "UTC"))
    method, percent, grace = late.get("method", "none"), late.get("percent", 10), late.get("grace_minutes", 0)
    if method not in METHODS:
        raise ValueError(f"method = {method!r} is none of {', '.join(METHODS)}")
    for name, value, most in (("percent", percent, 100), ("grace_minutes", grace, 10**6)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"{name} = {value!r} is no number from 0 to {most}")
    deadlines = {lab: _deadline(lab, value, zone) for lab, value in text.get("deadlines", {}).items()}
    extensions = {
        lab: {student: _days(lab, student, days) for student, days in given.items()}
        for lab, given in text.get("extensions", {}).items()
    }
    return Rules(zone, method, float(percent), float(grace), deadlines, extensions)


def _days(lab: str, student: str, days: Any) -> timedelta:
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= 366:
        raise ValueError(f"the extension of {student} for {lab}, {days!r}, is no number of days from 0 to 366")
    return timedelta(days=days)


def _refuse_unknown(table: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in table:
        if name not in known:
            raise ValueError(f"{name!r} is not {what}; known are {', '.join(known)}")


def _zone(name: Any) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(f"time_zone = {name!r} is no time zone, such as 'Asia/Shanghai'") from None


def _deadline(lab: str, value: Any, zone: ZoneInfo) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) and isinstance(value, date):
        value = datetime.combine(value, time(23, 59, 59))  # a day is meant to its end
    if not isinstance(value, datetime):
        raise ValueError(f"the deadline of {lab}, {value!r}, is no time such as 2026-03-02T23:59:00")
    return (value if value.tzinfo else value.replace(tzinfo=zone)).astimezone(UTC)


class LatePenalty(LateSubmissionPlugin):
    """nbgrader's plugin with a third method: a percentage of the score for each day begun.

    nbgrader calls `late_submission_penalty` for a submission behind its deadline, extensions included.
    """

    penalty_method = Enum(METHODS, default_value="none", help="none, zero or percent_per_day").tag(config=True)
    percent = Float(10.0, help="Per cent of the score for each day begun.").tag(config=True)
    grace_minutes = Float(0.0, help="Minutes behind the deadline that are not counted.").tag(config=True)

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None:
        """The points to take off; None for none."""
        late = total_seconds_late - 60 * self.grace_minutes
        if late <= 0 or self.penalty_method == "none":
            return None
        if self.penalty_method == "percent_per_day":
            return min(score, round(score * self.percent / 100 * math.ceil(late / 86_400), 2))
        return super().late_submission_penalty(student_id, score, late)


def set_deadline(course: Course, lab: str, rules: Rules) -> None:
    """Give the gradebook the deadline that the rules set for a lab, and its older releases too."""
    moment = next((rules.deadlines[name] for name in (lab, lab.split("_")[0]) if name in rules.deadlines), None)
    with Gradebook(course.gradebook_url) as gradebook:
        if moment:
            gradebook.update_or_create_assignment(lab, duedate=moment.replace(tzinfo=None))
        due = gradebook.find_assignment(lab).duedate
        for other in gradebook.assignments:
            if other.name.startswith(f"{lab}.") and other.duedate != due:
                gradebook.update_or_create_assignment(other.name, duedate=due)


def set_moment(course: Course, assignment: str, student: str, when: datetime | None, rules: Rules) -> None:
    """Correct when a submission was handed in: nbgrader keeps the time of an earlier one that had one.

    A student's extension is noted with it, before nbgrader counts how late it is.
    """
    extension = rules.extension(assignment, student)
    with Gradebook(course.gradebook_url) as gradebook, contextlib.suppress(MissingEntry):
        if extension is not None:
            gradebook.update_or_create_submission(assignment, student, extension=extension or None)
        submission = gradebook.find_submission(assignment, student)
        submission.timestamp = when.astimezone(UTC).replace(tzinfo=None) if when else None
        gradebook.db.commit()


def lateness(course: Course, assignment: str, student: str, rules: Rules) -> tuple[float, list[str]]:
    """A graded submission's penalty, and what to say of its lateness."""
    with Gradebook(course.gradebook_url) as gradebook:
        submission = gradebook.find_submission(assignment, student)
        late, when, due = submission.total_seconds_late, submission.timestamp, submission.duedate
        penalty = sum(notebook.late_submission_penalty or 0.0 for notebook in submission.notebooks)
    if late <= 0:
        return 0.0, []
    points = f"{penalty:g} points were taken off" if penalty else "no points were taken off"
    times = f"{rules.told(when.replace(tzinfo=UTC))}, the deadline was {rules.told(due.replace(tzinfo=UTC))}"
    return penalty, [f"handed in {_span(late)} late, at {times}; {points}"]


def _span(seconds: float) -> str:
    """A length of time in its two largest units.

    Example:
        >>> _span(93_600), _span(95)
        ('1 day 2 h', '1 min 35 s')
    """
    span = timedelta(seconds=round(seconds))
    hours, rest = divmod(span.seconds, 3600)
    minutes, last = divmod(rest, 60)
    parts = [(span.days, " days" if span.days > 1 else " day"), (hours, " h"), (minutes, " min"), (last, " s")]
    first = next((i for i, (number, _) in enumerate(parts) if number), 3)
    return " ".join(f"{number}{unit}" for number, unit in parts[first : first + 2] if number or first == 3)
