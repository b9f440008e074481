"""Is a result the oracle's, and if not, is it what some known mistake would give?

Where a mistake is no constant factor (a sum that stalls, a matrix counted twice), the verdict works out what
that mistake gives, with other inputs for the oracle, and hands both here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from utils.checks.agree import agree, close
from utils.checks.answers import is_number
from utils.checks.answers import number as one_number
from utils.checks.failed import CheckFailed
from utils.checks.words import short


def outcome(
    got: object,
    want: torch.Tensor,
    what: str,
    mistakes: Mapping[str, torch.Tensor] | Callable[[], Mapping[str, torch.Tensor]],
    *,
    rtol: float = 1e-4,
    atol: float = 1e-6,
) -> None:
    """`got` is `want`, a tensor; else the sentence of the mistake that gives `got`, else what `agree` says.

    Args:
        mistakes: sentence -> the tensor that this mistake gives, or a function that works these out, called
            only where `got` is wrong. A mistake that gives the right result here tells nothing and is passed
            over.

    >>> outcome(torch.tensor([256.0]), torch.tensor([300.0]), "the sum", {"it stalls": torch.tensor([256.0])})
    Traceback (most recent call last):
    CheckFailed: the sum: it stalls (the first element is 256, wanted 300).
    """
    if not _close(got, want, rtol, atol):
        for sentence, wrong in _all(mistakes).items():
            if _close(got, wrong, rtol, atol) and not _close(want, wrong, rtol, atol):
                off = (got.double() - want.double()).abs() > atol + rtol * want.double().abs()
                first = int(off.reshape(-1).int().argmax())
                place = "the first element" if first == 0 else f"element {first}"
                seen, wanted = (short(float(t.reshape(-1)[first])) for t in (got, want))
                raise CheckFailed(f"{what}: {sentence} ({place} is {seen}, wanted {wanted}).")
    agree(got, want, what, rtol=rtol, atol=atol)


def count(
    got: object,
    want: float,
    what: str,
    unit: str,
    mistakes: Mapping[str, float] | Callable[[], Mapping[str, float]],
    *,
    rel: float = 1e-6,
) -> None:
    """`got` is the number `want` within a relative error; else the sentence of the mistake that gives it.

    `mistakes` as in `outcome`, with numbers; where several fit, the nearest is told.

    >>> count(2000, 1000, "weights", "bytes", {"the tied matrix is in it twice": 2000})
    Traceback (most recent call last):
    CheckFailed: weights is 2000 bytes, wanted 1000: the tied matrix is in it twice.
    """
    if is_number(got) and not math.isclose(got, want, rel_tol=rel):
        fitting = {sentence: abs(got - wrong) for sentence, wrong in _all(mistakes).items()
                   if math.isclose(got, wrong, rel_tol=rel) and not math.isclose(want, wrong, rel_tol=rel)}  # fmt: skip
        cause = f": {min(fitting, key=fitting.get)}" if fitting else ""
        if cause or not unit:
            raise CheckFailed(f"{what} is {f'{short(got)} {unit}'.strip()}, wanted {short(want)}{cause}.")
    one_number(got, want, what, unit, rel=rel)


def _all(mistakes: Mapping | Callable[[], Mapping]) -> Mapping:
    return mistakes() if callable(mistakes) else mistakes


def _close(got: object, want: torch.Tensor, rtol: float, atol: float) -> bool:
    return close(got, want, rtol, atol) and got.dtype == want.dtype
