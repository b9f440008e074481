"""What staff want to know of a graded class: how it went, what was hard, what was misunderstood, what to look at."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from statistics import mean, median
from typing import Any

from autograder.course import Course
from autograder.people.misconceptions import UNANSWERED, Misconception, misconceptions
from autograder.people.roll import Entry, answers_of, class_of
from autograder.people.similar import AlikePair, alike, course_code
from autograder.report import environment

NOT_ISOLATED = "not isolated"
HUNG = re.compile(r"every rank waits|no wait can end|did not finish within|stopped after|did not stop after|hung")
CRASHED = re.compile(r"ended the process|killed by signal|aborted|exited with|used more than|ran out of memory")
FLOODED = re.compile(r"printed (?:more than|without end)")
OUTCOMES = ("passed", "part of the points", "failed", "hung", "not run", "not answered")
WORDS = {"hung": HUNG, "crashed": CRASHED, "printed without end": FLOODED}


@dataclass
class TestFigures:
    """How a test went: number of students by what became of it, and the mean share of its points."""

    __test__ = False

    id: str
    max_points: float
    share: float
    outcomes: dict[str, int]


@dataclass
class Trouble:
    """A submission that hung, crashed or printed without end, with the tests and cells that say so."""

    student: str
    what: str
    where: list[str]
    message: str


@dataclass
class ClassReport:
    """All that the report shows; shares are from 0 to 1."""

    lab: str
    max_score: float
    scores: dict[str, float]
    statuses: dict[str, int]
    tests: list[TestFigures]
    misconceptions: list[Misconception]
    troubles: list[Trouble]
    flags: dict[str, list[str]]
    ungraded: dict[str, str]
    not_isolated: int
    alike: list[AlikePair]
    answers: dict[str, dict[str, str]] = field(default_factory=dict)  # code of the students in alike

    @property
    def mean(self) -> float:
        return mean(self.scores.values()) if self.scores else 0.0

    @property
    def median(self) -> float:
        return median(self.scores.values()) if self.scores else 0.0

    @property
    def hardest(self) -> list[TestFigures]:
        """The tests, the hardest first."""
        return sorted(self.tests, key=lambda test: (test.share, test.id))

    def as_json(self) -> str:
        """The report as one JSON object, without the students' code."""
        record: dict[str, Any] = asdict(self)
        del record["answers"]
        record |= {"mean": self.mean, "median": self.median, "environment": environment()}
        return json.dumps(record, indent=1, ensure_ascii=False)


def class_report(course: Course, lab: str) -> ClassReport:
    """The report of a lab from the gradebook, the kept results and the submissions.

    Raises:
        UserError: nothing of this lab has been graded.
    """
    entries = class_of(course, lab)
    results = [entry.result for entry in entries if entry.score is not None]
    answers = answers_of(course, entries)
    pairs = alike(answers, course_code(course.solutions / f"{lab}.py", course.solutions.parent / "notebooks"))
    shown = {student for pair in pairs for student in (pair.first, pair.second)}
    return ClassReport(
        lab=lab,
        max_score=entries[0].max_score if entries else 0.0,
        scores={entry.student: entry.score for entry in entries if entry.score is not None},
        statuses=dict(Counter(entry.status for entry in entries)),
        tests=_figures(results),
        misconceptions=misconceptions(results),
        troubles=[trouble for result in results if (trouble := _trouble(result))],
        flags={entry.student: entry.result.flags for entry in entries if entry.result and entry.result.flags},
        ungraded={entry.student: _why(entry) for entry in entries if entry.score is None},
        not_isolated=sum(bool(entry.result) and entry.result.isolation == NOT_ISOLATED for entry in entries),
        alike=pairs,
        answers={student: answers[student] for student in sorted(shown)},
    )


def _why(entry: Entry) -> str:
    return entry.result.notes[0] if entry.status == "unreadable" and entry.result.notes else entry.status


def _figures(results: list[Any]) -> list[TestFigures]:
    by_test: dict[str, list[Any]] = {}
    for result in results:
        for test in result.tests:
            by_test.setdefault(test.id, []).append(test)
    figures = []
    for name, tests in by_test.items():
        highest = max(test.max_points for test in tests)
        share = mean(test.points for test in tests) / highest if highest else 1.0
        counts = Counter(map(outcome, tests))
        ordered = {what: counts[what] for what in OUTCOMES if counts[what]}
        figures.append(TestFigures(name, highest, round(share, 3), ordered))
    return figures


def outcome(test: Any) -> str:
    """What became of a test: one of OUTCOMES."""
    if test.status == "not run":
        return "not run"
    if test.message.startswith(UNANSWERED):
        return "not answered"
    if test.points >= test.max_points:
        return "passed"
    if test.points > 0:
        return "part of the points"
    return "hung" if test.status == "stopped" or HUNG.search(test.message) else "failed"


def _trouble(result: Any) -> Trouble | None:
    """The first kind of WORDS that a submission's tests or notes tell of, with all that tell of it."""
    told = [(test.id, test.message) for test in result.tests if test.message and test.status != "not run"]
    told += [tuple(note.split(": ", 1)) for note in result.notes if ": " in note]
    for what in ("crashed", "printed without end", "hung"):
        where = [(name, message) for name, message in told if WORDS[what].search(message)]
        if where:
            return Trouble(result.student, what, list(dict.fromkeys(name for name, _ in where)), where[0][1])
    return None


def summary(report: ClassReport) -> str:
    """The report in lines for a terminal."""
    graded = len(report.scores)
    lines = [f"{report.lab}: " + ", ".join(f"{number} {status}" for status, number in report.statuses.items())]
    if graded:
        lines.append(f"mean {round(report.mean, 2):g}, median {report.median:g} of {report.max_score:g}")
        lines += ["", "Hardest tests (mean share of the points):"]
        wide = max(len(test.id) for test in report.tests)
        for test in report.hardest[:8]:
            counts = ", ".join(f"{number} {name}" for name, number in test.outcomes.items())
            lines.append(f"  {test.id:<{wide}}  {test.share:4.0%}  {counts}")
    if report.not_isolated:
        lines += ["", f"{report.not_isolated} of them ran without a sandbox: not isolated."]
    if report.misconceptions:
        lines += ["", "What went wrong most often:"]
        for group in report.misconceptions[:8]:
            lines.append(f"  {_count(len(group.students))}, {', '.join(group.tests)}:")
            lines.append(f"      {short(group.example)}")
    if report.troubles:
        lines += ["", "Hung, crashed or flooded:"]
        lines += [f"  {one.student}: {one.what} ({', '.join(one.where)})" for one in report.troubles]
    if report.ungraded:
        lines += ["", "Without a grade (not a zero):"]
        lines += [f"  {student}: {short(why)}" for student, why in report.ungraded.items()]
    if report.flags:
        lines += ["", "For a person to look at:"]
        lines += [f"  {student}: {short(flag)}" for student, flags in report.flags.items() for flag in flags]
    if report.alike:
        lines += ["", "Answers that are much alike (read them side by side in the HTML report):"]
        for pair in report.alike:
            tasks = ", ".join(f"{cell.task} {cell.similarity:.0%}" for cell in pair.cells)
            lines.append(f"  {pair.first} and {pair.second}: {tasks}")
    return "\n".join(lines)


def _count(students: int) -> str:
    return f"{students} student{'s' if students != 1 else ''}"


def short(text: str, width: int = 150) -> str:
    """The text on one line, cut at `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."
