"""Answers to questions: their form (visible tests) and their value (hidden tests)."""

from __future__ import annotations

import math
import numbers as numeric
from collections.abc import Mapping, Sequence

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, short

SLIPS = {2: "", 4: "elements or bytes?", 8: "bits or bytes?", 1000: "unit?", 1024: "unit?", 1e6: "unit?"}


def answer(value: object, what: str) -> dict:
    """`value` as a dictionary.

    >>> answer(None, "question_results")
    Traceback (most recent call last):
    CheckFailed: question_results returned NoneType; a dictionary is wanted.
    """
    if not isinstance(value, Mapping):
        raise CheckFailed(f"{what} returned {type(value).__name__}; a dictionary is wanted.")
    return dict(value)


def has_number(answers: Mapping, key: str, what: str) -> None:
    """`answers[key]` is a finite number."""
    value = _entry(answers, key, what)
    if not is_number(value):
        raise CheckFailed(f'{what}: "{key}" must be a number; it is {_shown(value)}.')


def has_list_of_ints(answers: Mapping, key: str, what: str) -> None:
    """`answers[key]` is a list (or tuple) of whole numbers."""
    value = _entry(answers, key, what)
    if not isinstance(value, (list, tuple)) or not value or not all(_is_int(item) for item in value):
        form = "a list of whole numbers like [1, 2]"
        raise CheckFailed(f'{what}: "{key}" must be {form}; it is {_shown(value)}.')


def has_letter(answers: Mapping, key: str, letters: str, what: str) -> None:
    """`answers[key]` is one of `letters`, as a string."""
    value = _entry(answers, key, what)
    if not isinstance(value, str) or len(value) != 1 or value not in letters:
        raise CheckFailed(f'{what}: "{key}" must be one of {listed(letters)}; it is {_shown(value)}.')


def answers_agree(answers: Mapping, wanted: Mapping, what: str) -> None:
    """Each answer is the wanted one; the message names the wrong ones, never what is right."""
    wrong = [key for key, value in wanted.items() if _plain(answers.get(key)) != _plain(value)]
    if wrong:
        right = len(wanted) - len(wrong)
        raise CheckFailed(f"{what}: {right} of {len(wanted)} are right. Think again about {listed(wrong)}.")


def numbers(value: object, count: int, what: str) -> list[float]:
    """`value` as a list of `count` finite numbers."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != count:
        raise CheckFailed(f"{what}: {count} numbers are wanted; the function returned {_shown(value)}.")
    for index, item in enumerate(value):
        if not is_number(item):
            raise CheckFailed(
                f"{what}: value {index} of {count} is {_shown(item)}; a finite number is wanted."
            )
    return [float(item) for item in value]


def number(got: float, want: float, what: str, unit: str, *, rel: float = 1e-6, floor: float = 1e-12) -> None:
    """`got` is `want` within a relative error; otherwise the message names a known slip (reciprocal, factor).

    >>> number(1e8, 1e-8, "beta", "s/byte")
    Traceback (most recent call last):
    CheckFailed: beta is 1e+08 s/byte, wanted 1e-08: the reciprocal; check the unit.
    """
    if not is_number(got):
        raise CheckFailed(f"{what} is {_shown(got)}; a finite number of {unit} is wanted.")
    if math.isclose(got, want, rel_tol=rel, abs_tol=floor):
        return
    raise CheckFailed(f"{what} is {short(float(got))} {unit}, wanted {short(float(want))}{_slip(got, want)}")


def between(got: float, low: float, high: float, what: str, unit: str) -> None:
    """`got` lies in a range so wide that only a wrong unit falls outside."""
    if not low <= got <= high:
        raise CheckFailed(
            f"{what} is {short(float(got))} {unit}; {low:g} to {high:g} is plausible. Is the unit right?"
        )


def _slip(got: float, want: float) -> str:
    if want == 0 or got == 0:
        return "."
    if math.isclose(got * want, 1, rel_tol=1e-3):
        return ": the reciprocal; check the unit."
    for factor, hint in SLIPS.items():
        for ratio, word in ((got / want, "times too large"), (want / got, "times too small")):
            if math.isclose(ratio, factor, rel_tol=1e-3):
                return f": {factor:g} {word}" + (f" ({hint})" if hint else "") + "."
    if math.isclose(got, -want, rel_tol=1e-3):
        return ": the sign is wrong."
    return "."


def _entry(answers: Mapping, key: str, what: str) -> object:
    if key not in answers:
        keys = listed(answers) if answers else "no keys"
        raise CheckFailed(f'{what}: the key "{key}" is missing; there are {keys}.')
    return answers[key]


def is_number(value: object) -> bool:
    return isinstance(value, numeric.Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_int(value: object) -> bool:
    return isinstance(value, numeric.Integral) and not isinstance(value, bool)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
