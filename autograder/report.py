"""The class's results as JSON and as a table on the terminal."""

from __future__ import annotations

import json
import platform
import subprocess
import textwrap
from importlib.metadata import version
from pathlib import Path

from autograder.course import REPO
from autograder.results import Result, TestResult


def environment() -> dict[str, str | None]:
    """What the grades were made with."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "nbgrader": version("nbgrader"),
        "platform": platform.platform(),
        "course": version("distributed-llm-course"),
        "commit": _commit(),
    }


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(REPO), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def as_json(lab: str, results: list[Result]) -> str:
    """One JSON object: lab, environment, submissions with their tests."""
    submissions = [result.as_record() for result in results]
    return json.dumps(
        {"lab": lab, "environment": environment(), "submissions": submissions}, indent=1, ensure_ascii=False
    )


def write_json(path: Path, lab: str, results: list[Result]) -> None:
    """Write the JSON report, making its folder where needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_json(lab, results) + "\n", encoding="utf-8")


def table(results: list[Result]) -> str:
    """The gradebook: a line for each student, a column for each test, and what the columns are.

    A cell shows the points; `-` is a test that could not run.
    """
    tests = next((result.tests for result in results if result.tests), [])
    wide = max([len(result.student) for result in results] + [len("student")])
    head = f"{'student':<{wide}}  {'score':>9}  " + " ".join(f"{i:>3}" for i in range(1, len(tests) + 1))
    lines = [head, "-" * len(head)]
    for result in results:
        marks = " ".join(f"{_mark(test):>3}" for test in result.tests)
        score = f"{result.score:g} / {result.max_score:g}" if result.tests else "-"
        lines.append(f"{result.student:<{wide}}  {score:>9}  {marks or result.status}".rstrip())
    # No line break inside an entry.
    legend = ", ".join(f"{i}\N{NO-BREAK SPACE}{test.id}" for i, test in enumerate(tests, 1))
    wrapped = textwrap.wrap(f"Tests: {legend}", max(len(head), 80), break_long_words=False)
    lines += ["", *(line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped)]
    return "\n".join(lines)


def _mark(test: TestResult) -> str:
    return "-" if test.status == "not run" else f"{test.points:g}"


def reasons(results: list[Result], width: int = 180) -> str:
    """Why points were lost: for each student the notes, and each different message with its tests."""
    lines = []
    for result in results:
        by_message: dict[str, list[str]] = {}
        for test in result.tests:
            if test.message:
                by_message.setdefault(_in_short(test.message, width), []).append(test.id)
        lines += [f"{result.student} ({result.status})"] if by_message or result.notes else []
        lines += [f"    note: {_in_short(note, width)}" for note in result.notes]
        for message, ids in by_message.items():
            lines.append(f"    {'all tests' if len(ids) == len(result.tests) else ', '.join(ids)}: {message}")
    return "\n".join(lines)


def _in_short(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."
