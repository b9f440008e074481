"""Finds a lab's cells in a submission: by their marks where these are left, else by id, text, names and place."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from typing import Any

from nbformat import NotebookNode

from autograder.intake.reading import grade_id, is_answer

ALIKE = 0.6
COMPARED_CHARS = 5_000
COMPARED_CELLS = 40
DEFINED = re.compile(r"(?m)^(?:(?:async\s+)?def\s+|class\s+|(?=\w+\s*=[^=]))(\w+)")


class Matching:
    """Which cells of a submission are which named cells of the release.

    `places[name]` lists the places of the cells that could be it, in order. The submission is not changed.

    Example:
        Matching(notebook, release).places["ring_all_reduce"]      # [13]; [13, 20] where the cell was copied
    """

    def __init__(self, notebook: NotebookNode, release: NotebookNode) -> None:
        self.cells = notebook.cells
        self.texts = [_trimmed(cell.source) for cell in self.cells]
        self.keys = [cell_key(cell) for cell in release.cells]
        self.release = release.cells
        self.named = {grade_id(cell): cell for cell in release.cells if grade_id(cell)}
        self.places: dict[str, list[int]] = {}
        self.taken: set[int] = set()
        self._by_mark()
        self._by_id()
        self._by_text()
        self._by_answer()
        self._by_place()

    @property
    def missing(self) -> list[str]:
        """Names of the cells that were not found, in the release's order."""
        return [name for name in self.named if name not in self.places]

    def window(self, name: str) -> tuple[int, int]:
        """The places between which a cell belongs: after the first, before the second."""
        here = self.keys.index(name)
        before, after = -1, len(self.cells)
        for place, rank in self._anchors(leave_out=name):
            if rank < here:
                before = place
            elif rank > here:
                return before, place
        return before, after

    def _anchors(self, leave_out: str) -> list[tuple[int, int]]:
        """(place, rank in the release) of cells whose place is beyond doubt, rising in both."""
        sure = [
            (places[0], rank)
            for rank, key in enumerate(self.keys)
            if key != leave_out and len(places := self.found(key)) == 1
        ]
        return _longest_rising(sorted(sure))

    def found(self, key: str) -> list[int]:
        """The places of a cell of the release, whether it has a task id or not."""
        return self.places.get(key, []) if key in self.named else self.others[key]

    @cached_property
    def others(self) -> dict[str, list[int]]:
        """Places of the release's cells without a task id, by id or text."""
        by_id = {cell.id: i for i, cell in enumerate(self.cells)}
        by_text: dict[tuple[str, ...], list[int]] = {}
        for i, text in enumerate(self.texts):
            by_text.setdefault(tuple(text), []).append(i)
        others = [cell for cell in self.release if not grade_id(cell)]
        return {
            cell.id: [by_id[cell.id]] if cell.id in by_id else by_text.get(tuple(_trimmed(cell.source)), [])
            for cell in others
        }

    def _take(self, name: str, places: list[int]) -> None:
        if places:
            self.places[name] = sorted(self.places.get(name, []) + places)
            self.taken.update(places)

    def _by_mark(self) -> None:
        for name in self.named:
            self._take(name, [i for i, cell in enumerate(self.cells) if grade_id(cell) == name])

    def _free(self) -> Iterator[tuple[int, Any]]:
        """Cells that are none of the release's so far; a cell with a mark that is not ours is free too."""
        return ((i, cell) for i, cell in enumerate(self.cells) if i not in self.taken)

    def _by_id(self) -> None:
        for name in self.missing:
            self._take(name, [i for i, cell in self._free() if cell.id in (name, self.named[name].id)])

    def _by_text(self) -> None:
        for name in self.missing:
            if not is_answer(self.named[name]):
                text = _trimmed(self.named[name].source)
                self._take(name, [i for i, _ in self._free() if self.texts[i] == text])

    def _by_answer(self) -> None:
        """Answers without marks: cells that define what is asked for, where no cell with the marks does.

        Blank copies without marks are taken in any case: below the answer they would take its place.
        """
        for name, original in self.named.items():
            if is_answer(original):
                stub, asked = _trimmed(original.source), defined_names(original.source)
                rivals = [i for i in self.places.get(name, []) if self.texts[i] != stub]
                lost = not any(not asked or asked & defined_names(self.cells[i].source) for i in rivals)
                free = list(self._free())
                self._take(name, [i for i, cell in free if self.texts[i] == stub or (lost and _answers(cell, asked))])

    def _by_place(self) -> None:
        for name in self.missing:
            before, after = self.window(name)
            free = [(i, cell) for i, cell in self._free() if before < i < after][:COMPARED_CELLS]
            if is_answer(self.named[name]):
                # A single cell of code in the place of the answer can be nothing else.
                code = [i for i, cell in free if cell.cell_type == "code" and cell.source.strip()]
                if len(code) == 1 and self._next_is_found(name) and not defined_names(self.named[name].source):
                    self._take(name, code)
            else:
                alike = [(_likeness(cell.source, self.named[name].source), -i) for i, cell in free]
                if alike and max(alike)[0] >= ALIKE:
                    self._take(name, [-max(alike)[1]])

    def _next_is_found(self, name: str) -> bool:
        """Whether the release's cell behind this one was found, so that the window is no wider than one task."""
        after = self.keys[self.keys.index(name) + 1 :][:1]
        return not after or bool(self.found(after[0]))


def _answers(cell: Any, asked: frozenset[str]) -> bool:
    return bool(asked) and asked <= defined_names(cell.source)


def cell_key(cell: Any) -> str:
    """How a cell of a release is called here: its task id, else its id."""
    return grade_id(cell) or cell.id


@lru_cache(maxsize=10_000)
def defined_names(source: str) -> frozenset[str]:
    """The functions, classes and variables that a cell defines at its top level, also where it does not parse.

    Example:
        >>> sorted(defined_names("import os\\ndef f(x):\\n    y = 1\\nz = 2"))
        ['f', 'z']
    """
    try:
        tree = ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(DEFINED.findall(source))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return frozenset(found)


def same_text(first: str, second: str) -> bool:
    """Whether two texts differ at most in blanks at the ends of lines and of the text."""
    return _trimmed(first) == _trimmed(second)


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _likeness(first: str, second: str) -> float:
    compare = SequenceMatcher(None, first[:COMPARED_CHARS], second[:COMPARED_CHARS], autojunk=False)
    return compare.ratio() if compare.real_quick_ratio() >= ALIKE and compare.quick_ratio() >= ALIKE else 0.0


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second numbers rise; the pairs come sorted by their first."""
    tails: list[int] = []
    ends: list[int] = []
    back = [-1] * len(pairs)
    for i, (_, rank) in enumerate(pairs):
        at = bisect_left(tails, rank)
        back[i] = ends[at - 1] if at else -1
        tails[at:], ends[at:] = [rank, *tails[at + 1 :]], [i, *ends[at + 1 :]]
    chain, i = [], ends[-1] if ends else -1
    while i >= 0:
        chain.append(pairs[i])
        i = back[i]
    return chain[::-1]
