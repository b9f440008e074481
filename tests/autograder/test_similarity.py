"""Copied answers are found whatever their names and layout; answers written apart, and short ones, are left alone."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from autograder.course import REPO
from autograder.people.normal import tokens
from autograder.people.similar import ALIKE, Known, alike, course_code
from autograder.sources.cells import read_source
from autograder.sources.regions import stubbed

LAB = REPO / "solutions" / "lab01_allreduce.py"
ANSWERS = sorted((REPO / "tests" / "answers" / "lab01").glob("*.py"))


def cells_of(path: Path) -> dict[str, str]:
    return {cell.name: cell.text for cell in read_source(path).of_kind("solution")}


def is_right(path: Path) -> bool:
    return "# kind: right" in path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def known() -> Known:
    return course_code(LAB, REPO / "notebooks")


OTHER_NAMES = {
    "rank": "me",
    "world": "p",
    "step": "k",
    "right": "nxt",
    "left": "prv",
    "incoming": "buf",
    "outgoing": "mine",
    "target": "place",
    "request": "w",
    "operations": "todo",
}


def disguised(text: str) -> str:
    """A copy as students disguise one: other names, comments, types left out, texts and spacing changed."""
    changed = text
    for name, other in OTHER_NAMES.items():
        changed = re.sub(rf"(?<![\w.]){name}\b(?!=)", other, changed)
    lines = []
    for line in changed.splitlines():
        lines += [line.replace(" % ", "%") + "   # my own work"] if line.strip() else []
        if line.startswith("def "):
            lines.append('    """Written by me."""')
    return "\n\n".join(lines)


LONG_ONES = ["odd_even_blocking", "padded_chunks", "recursive_tree", "ring_everywhere", "one_function"]


@pytest.mark.parametrize("name", LONG_ONES)
def test_a_renamed_copy_is_found_among_all_the_others(name: str, known: Known) -> None:
    (path,) = [path for path in ANSWERS if path.stem == name]
    answers = {other.stem: cells_of(other) for other in ANSWERS if is_right(other)}
    answers["copy"] = {task: disguised(text) for task, text in cells_of(path).items()}
    assert answers["copy"] != answers[name]
    (pair,) = alike(answers, known)
    assert {pair.first, pair.second} == {name, "copy"}
    assert pair.similarity >= 0.95
    assert {cell.task for cell in pair.cells} <= set(answers[name])


def test_a_copy_with_a_few_lines_changed_is_found(known: Known) -> None:
    (path,) = [path for path in ANSWERS if path.stem == "odd_even_blocking"]
    first = cells_of(path)
    task = max(first, key=lambda name: len(first[name]))
    lines = first[task].splitlines()
    first_line = next(i for i, line in enumerate(lines) if line.startswith("def "))
    lines[first_line + 1 : first_line + 1] = ["    debug = False", "    if debug:", "        print('here')"]
    second = {task: disguised("\n".join(lines))}
    (pair,) = alike({"Ann": {task: first[task]}, "Bob": second}, known)
    assert ALIKE <= pair.similarity < 1


def test_answers_written_apart_are_no_pair(known: Known) -> None:
    right = {path.stem: cells_of(path) for path in ANSWERS if is_right(path)}
    assert len(right) >= 10
    by_task: dict[str, int] = {}
    for cells in right.values():
        for task in cells:
            by_task[task] = by_task.get(task, 0) + 1
    assert max(by_task.values()) >= 4, "no task has answers written apart"
    assert alike(right, known) == []


def test_the_reference_and_the_stub_are_nobodys_own(known: Known) -> None:
    reference = {cell.name: cell.text for cell in read_source(LAB).of_kind("solution")}
    blank = {name: stubbed(text) for name, text in reference.items()}
    assert alike({"Ann": reference, "Bob": reference, "Cem": blank, "Dia": blank}, known) == []


def test_a_short_answer_is_no_evidence() -> None:
    short = "def answer_steps(p):\n    return 2 * (p - 1)"
    known = Known(["x = 1"])
    assert alike({"Ann": {"steps": short}, "Bob": {"steps": short}}, known) == []
    many = {f"task {i}": f"def f(a):\n    return a * {i} + {i + 1} - len(a)" for i in range(12)}
    (pair,) = alike({"Ann": many, "Bob": dict(many)}, known)
    assert len(pair.cells) == 12, "many short answers, all the same, are evidence together"


def test_a_class_is_compared_pair_by_pair(known: Known) -> None:
    (path,) = [path for path in ANSWERS if path.stem == "odd_even_blocking"]
    text = cells_of(path)
    pairs = alike({"Ann": text, "Bob": text, "Cem": text}, known)
    assert [(pair.first, pair.second) for pair in pairs] == list(combinations(["Ann", "Bob", "Cem"], 2))


def test_the_normal_form_forgets_what_a_copy_changes() -> None:
    first = "import torch\ndef help(x: int) -> int:\n  return x\ndef f(a):\n  'Doc.'\n  b = help(a)  # c\n  return b"
    second = "import torch\ndef g(q):\n    r = other(q)\n    return r\ndef other(z):\n    return z"
    assert tokens(first) == tokens(second)
    assert tokens("def f(a):\n    return dist.send(a)") != tokens("def f(a):\n    return dist.recv(a)")
    assert tokens("%time f()\nx = 1") == tokens("x = 1")


@pytest.mark.parametrize("text", ["def f(:\n x = (1,", "'''open", "\x00", "é = 1", "", "class A: 1", "f'{x!r:>{w}}'"])
def test_anything_a_cell_may_hold_has_a_normal_form(text: str) -> None:
    assert isinstance(tokens(text), list)
