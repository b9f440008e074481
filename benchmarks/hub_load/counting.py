"""What became of the hand-ins: each student's last one is collected once, as it was handed in, and graded once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from autograder.hub.layout import Layout
from benchmarks.hub_load.answers import LAB, fingerprint

SCORES = """
select submitted_assignment.student_id, submitted_assignment.id,
       (select sum(coalesce(manual_score, auto_score, 0) + coalesce(extra_credit, 0)) from grade
        join submitted_notebook on grade.notebook_id = submitted_notebook.id
        where submitted_notebook.assignment_id = submitted_assignment.id)
from submitted_assignment join assignment on submitted_assignment.assignment_id = assignment.id
where assignment.name = ? or assignment.name like ? || '.%'
"""


@dataclass(frozen=True)
class HandedIn:
    """What a student knows: fingerprints of their hand-ins in turn, and the points that the last should get."""

    prints: tuple[str, ...]
    points: float


@dataclass
class Count:
    """Students in trouble, each with a sentence. Nobody is in trouble when all is well."""

    submitted: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    doubled: dict[str, str] = field(default_factory=dict)
    misgraded: dict[str, str] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        return [*self.lost.values(), *self.doubled.values(), *self.misgraded.values()]


def count(layout: Layout, students: Mapping[str, HandedIn]) -> Count:
    """Hold what lies in the class's folder to what students handed in.

    lost: the last hand-in is not what was collected, or nothing of the student is in the gradebook. doubled: more
    hand-ins lie in the exchange than were made, or one was collected or entered in the gradebook more than once.
    misgraded: the points are others than the answer is worth.
    """
    found = Count(submitted=sum(bool(one.prints) for one in students.values()))
    collected = {path: _print(path) for path in sorted((layout.data / "submitted").glob("*/*/*.ipynb"))}
    seen, marks = Counter(collected.values()), _marks(layout.data / "gradebook.db")
    for name, one in students.items():
        mine = [path for path in collected if path.parts[-3] == name]
        waiting = len([path for path in layout.inbound(name).iterdir() if f"+{LAB}+" in path.name])
        points = marks.get(name, [])
        if problem := _lost(name, one, [collected[path] for path in mine], points, waiting):
            found.lost[name] = problem
        times = {
            f"{waiting} hand-ins lie in the exchange and {len(one.prints)} were made": waiting > len(one.prints),
            f"{len(mine)} notebooks were collected": len(mine) > 1,
            "one of theirs was collected under another name as well": any(seen[one_] > 1 for one_ in one.prints),
            f"{len(points)} submissions are in the gradebook": len(points) > 1,
        }
        if wrong := [text for text, is_so in times.items() if is_so]:
            found.doubled[name] = f"{name} is doubled: {', and '.join(wrong)}."
        if points and points != [one.points]:
            told = ", ".join(f"{value:g}" for value in points)
            found.misgraded[name] = f"{name} has {told} points, and what was handed in last is worth {one.points:g}."
    return found


def _lost(name: str, one: HandedIn, collected: list[str], points: list[float], waiting: int) -> str:
    """In what way a hand-in of a student was lost; "" if none was."""
    if not one.prints:
        return f"{name} did not get to hand in."
    if waiting < len(one.prints):
        return f"{name} handed in {len(one.prints)} times, and {waiting} of them lie in the exchange."
    if one.prints[-1] not in collected:
        known = [number for number, each in enumerate(one.prints, start=1) if each in collected]
        what = f"hand-in {known[0]}" if known else "another notebook" if collected else "nothing"
        return f"{name} handed in {len(one.prints)} times, and {what} was collected in place of the last."
    return "" if points else f"The hand-in of {name} was collected and has no marks in the gradebook."


def _print(path: Path) -> str:
    return fingerprint(json.loads(path.read_text(encoding="utf-8")))


def _marks(gradebook: Path) -> dict[str, list[float]]:
    """Points of each submission of the lab by student, read without a write: the file is the grader's."""
    marks: dict[str, list[float]] = {}
    with closing(sqlite3.connect(f"file:{gradebook}?mode=ro", uri=True)) as book:
        for student, _, points in book.execute(SCORES, (LAB, LAB)):
            marks.setdefault(student, []).append(points)
    return marks
