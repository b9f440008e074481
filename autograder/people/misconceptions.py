"""Groups the messages of a class by what went wrong, whatever ranks, numbers and lines they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz.fuzz import ratio

from autograder.results import Result

NEARLY_EQUAL = 88
UNANSWERED = ("not answered yet", "not run")
_NUMBER = r"(?<![\w#])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_MASKS = [
    (re.compile(r"(?:, )?(?:at |it was at )?line \d+ of cell In\[\d+\](?::[^;\n]*)?"), ""),
    (re.compile(r"; it was at line \d+:.*"), ""),
    (re.compile(r"\(([^()]|\([^()]*\))*\d([^()]|\([^()]*\))*\)"), ""),  # sizes and values in brackets
    (re.compile(r"\b[Rr]anks? \d+(?:(?:, | and )\d+)*(?: of \d+)?"), "a rank"),
    (re.compile(r"\b[Aa] rank (?:is|are) wrong\.\s*(?:A|a) rank: "), ""),
    (re.compile(r"\belements? \d+(?:\.\.\d+)?(?: of \d+)?"), "some elements"),
    (re.compile(r"#\d+"), "#N"),
    (re.compile(rf"{_NUMBER}(?:(?:, | and |\.\.| to ){_NUMBER})*"), "N"),
    (re.compile(r"\s+([.,;:])"), r"\1"),
    (re.compile(r"[ \t]+"), " "),
]


@dataclass
class Misconception:
    """One thing that went wrong: one of the messages that say so, who got it, and in which tests."""

    example: str
    students: list[str]
    tests: list[str]


def masked(message: str) -> str:
    """What a message says, without the ranks, numbers, lines and code it names; of a report the first and last line.

    >>> masked("ring (numel 1, p = 2): ranks 0 and 1 of 2 are wrong. Rank 0: element 0 still holds its input (0 is 6).")
    'ring: some elements still holds its input.'
    """
    lines = [line for line in message.strip().splitlines() if line.strip()]
    told = lines[:1] + [line for line in lines[-1:] if len(lines) > 1 and not line.startswith(" ")]
    text = " ".join(told)
    for pattern, put in _MASKS:
        text = pattern.sub(put, text)
    return text.strip()


def misconceptions(results: Iterable[Result]) -> list[Misconception]:
    """What went wrong in a class, the most frequent first; tasks not begun and tests not run are left out.

    Two messages are one when what is left after masking is nearly equal. Students count once each.
    """
    groups: dict[str, Misconception] = {}
    for result in results:
        for test in result.tests:
            if test.status == "passed" or not test.message or test.message.startswith(UNANSWERED):
                continue
            group = groups.setdefault(_group(masked(test.message), groups), Misconception(test.message, [], []))
            group.students += [result.student] if result.student not in group.students else []
            group.tests += [test.id] if test.id not in group.tests else []
    return sorted(groups.values(), key=lambda group: (-len(group.students), -len(group.tests), group.example))


def _group(key: str, groups: dict[str, Misconception]) -> str:
    return next((other for other in groups if ratio(key, other) >= NEARLY_EQUAL), key)
