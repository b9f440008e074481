"""What students hand in for lab 01, and the points that the lab's own answer files promise for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autograder.answers import MARK, read_answer
from autograder.course import REPO
from autograder.sources.cells import Source, read_source

LAB = "lab01_allreduce"
SIGNED = "ring_all_reduce"  # the solution cell that bears the student's name and the number of the hand-in
WRONG = ("mean_over_ranks", "beta_is_bandwidth", "tree_spoils_x")


@dataclass(frozen=True)
class Work:
    """Solution cells by grade id (those not named stay as released), and the points that they are worth."""

    cells: Mapping[str, str]
    points: float


@cache
def works() -> dict[str, Work]:
    """Work by its kind: `right` is the reference, `blank` is nothing, others are wrong answers by their file's name."""
    lab = read_source(REPO / "solutions" / f"{LAB}.py")
    reference = {cell.name: _typed(cell.text) for cell in lab.of_kind("solution")}
    points = {cell.name: cell.points for cell in lab.of_kind("test")}
    found = {"right": Work(reference, sum(points.values())), "blank": Work({}, 0)}
    return found | {name: _wrong(name, lab, reference, points) for name in WRONG}


def _wrong(name: str, lab: Source, reference: dict[str, str], points: dict[str, int]) -> Work:
    answer = read_answer(REPO / "tests" / "answers" / "lab01" / f"{name}.py", lab)
    kept = sum(worth for test, worth in points.items() if test not in answer.loses)
    return Work(reference | dict(answer.replace), kept)


def _typed(source: str) -> str:
    """A reference cell as a student would type it: without the lines that mark the answer."""
    return "\n".join(line for line in source.splitlines() if not MARK.search(line))


def answered(released: Mapping[str, Any], kind: str, who: str, number: int) -> dict[str, Any]:
    """A fetched notebook with work of a kind put in, signed so that no two hand-ins of a class are equal."""
    cells = works()[kind].cells
    notebook = json.loads(json.dumps(released))
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", cell.get("id"))
        cell["source"] = cells.get(name, cell["source"])
        if name == SIGNED:
            cell["source"] += f"\n# {who}, hand-in {number}"
    return notebook


def fingerprint(notebook: Mapping[str, Any]) -> str:
    """What tells one hand-in from another: its cells' ids, kinds and sources, whatever a server added to the file."""
    sources = [(cell["id"], cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()
