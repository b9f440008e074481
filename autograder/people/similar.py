"""Finds answers of a class that are too alike to have been written apart.

Compared is the normal form of each answer (see `normal.py`), and of that only what is the author's own: pieces that
also stand in the lab, in its reference answer or in the lecture notebooks count for nothing. So a short task with one
way to write it yields no evidence, nor do two answers that each hold the reference. rapidfuzz aligns what is left.
A pair is something for a person to read, not a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from rapidfuzz.distance import LCSseq
from rapidfuzz.process import cdist

from autograder.people.normal import tokens
from autograder.sources.cells import read_source
from autograder.sources.regions import stubbed

# Measured on the answers to lab 01 in tests/answers, each with every other: those written apart come to at most 0.6
# of their own tokens at this piece length, a renamed copy to 1. At 14, two loops around the same helper pass for one.
PIECE = 12
ALIKE = 0.75
FEW_TOKENS = 45  # about six lines
FEW_IN_ALL = 80


@dataclass(frozen=True)
class AlikeCell:
    """One task in which two answers are alike: by how much, and in how many tokens of their own."""

    task: str
    similarity: float
    tokens: int


@dataclass(frozen=True)
class AlikePair:
    """Two students, the share of their own code that is the same, and the tasks concerned, most alike first."""

    first: str
    second: str
    similarity: float
    tokens: int
    cells: tuple[AlikeCell, ...]


class Known:
    """The course's own pieces of code, which no two students share for having copied from each other."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._pieces: set[tuple[str, ...]] = set()
        for text in texts:
            self._pieces.update(_pieces(tokens(text)))

    def own(self, text: str) -> list[str]:
        """The tokens of an answer that stand in no known piece."""
        all_tokens = tokens(text)
        known = set()
        for start, piece in enumerate(_pieces(all_tokens)):
            if piece in self._pieces:
                known.update(range(start, start + PIECE))
        return [token for place, token in enumerate(all_tokens) if place not in known]


def _pieces(found: list[str]) -> list[tuple[str, ...]]:
    return [tuple(found[start : start + PIECE]) for start in range(len(found) - PIECE + 1)]


def course_code(lab_source: Path, notebooks: Path) -> Known:
    """What a lab's source, with its reference and its stubs, and the lecture notebooks hold."""
    texts = []
    for path in [lab_source, *sorted(notebooks.glob("*.py"))]:
        for cell in read_source(path).cells:
            if cell.kind == "markdown":
                continue
            texts.append("\n".join(line for line in cell.text.splitlines() if not line.lstrip().startswith("###")))
            if cell.kind == "solution":
                texts.append(stubbed(cell.text))
    return Known(texts)


def alike(answers: Mapping[str, Mapping[str, str]], known: Known) -> list[AlikePair]:
    """The pairs of students whose answers are alike, the most alike first.

    Args:
        answers: code by student and task.
        known: the course's own code.

    A pair is reported for a task in which at least FEW_TOKENS tokens of their own agree, and they are ALIKE of what
    both have there; or for all tasks together, with FEW_IN_ALL tokens.

    Example:
        alike({"Ann": {"ring": text}, "Bob": {"ring": text_with_other_names}}, known)
        # [AlikePair('Ann', 'Bob', 1.0, 85, (AlikeCell('ring', 1.0, 85),))]
    """
    own = {student: {task: known.own(text) for task, text in cells.items()} for student, cells in answers.items()}
    shared = _shared_by_pair(own)
    pairs = [_judge(own, pair, by_task) for pair, by_task in shared.items()]
    found = [pair for pair in pairs if pair]
    return sorted(found, key=lambda pair: (-pair.similarity, -pair.tokens, pair.first, pair.second))


def _shared_by_pair(own: dict[str, dict[str, list[str]]]) -> dict[tuple[str, str], dict[str, int]]:
    """For each pair of students and each task, the number of own tokens that agree in order (where there are any)."""
    letters: dict[str, str] = {}
    shared: dict[tuple[str, str], dict[str, int]] = {}
    for task in sorted({task for cells in own.values() for task in cells}):
        students = [student for student in own if own[student].get(task)]
        # One character a token: rapidfuzz compares strings fastest.
        texts = ["".join(letters.setdefault(t, chr(len(letters) + 1)) for t in own[s][task]) for s in students]
        if len(texts) < 2:
            continue
        table = cdist(texts, texts, scorer=LCSseq.similarity)
        for (i, first), (j, second) in combinations(enumerate(students), 2):
            shared.setdefault((first, second), {})[task] = int(table[i, j])
    return shared


def _judge(own: dict[str, dict[str, list[str]]], pair: tuple[str, str], shared: dict[str, int]) -> AlikePair | None:
    first, second = pair
    sizes = {task: (len(own[first][task]), len(own[second][task])) for task in shared}
    cells = [AlikeCell(task, _share(number, sizes[task]), number) for task, number in shared.items()]
    telling = [cell for cell in cells if cell.tokens >= FEW_TOKENS and cell.similarity >= ALIKE]
    every = tuple(sum(len(found) for found in own[student].values()) for student in pair)
    in_all = sum(shared.values())
    if _share(in_all, every) >= ALIKE and in_all >= FEW_IN_ALL:
        telling = [cell for cell in cells if cell.similarity >= ALIKE and cell.tokens >= PIECE]
    if not telling:
        return None
    number = sum(cell.tokens for cell in telling)
    both = tuple(sum(sizes[cell.task][who] for cell in telling) for who in (0, 1))
    telling.sort(key=lambda cell: (-cell.similarity, -cell.tokens, cell.task))
    return AlikePair(first, second, _share(number, both), number, tuple(telling))


def _share(common: int, sizes: tuple[int, ...]) -> float:
    return round(2 * common / sum(sizes), 2) if sum(sizes) else 0.0
