"""Quantised numbers, held to the definition one number at a time, and rounding held to least squares.

`by_definition` is Jacob et al. 2017 (arXiv 1712.05877, equation 1: x is about scale * (q - zero)) in plain Python, and
with a slip, for messages, what a known mistake gives. `rounded_in_order` rounds one input after the other and solves
for the others anew, with the normal equations (Frantar et al. 2022, arXiv 2210.17323, equation 2; it needs no inverse
and no Cholesky factor). Left out: speed; both are for small cases.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch

from utils.checks.agree import agree
from utils.checks.failed import CheckFailed
from utils.checks.outcomes import outcome

TIE = 1e-3  # how near to halfway between two whole numbers either of them is right
SLIPS = {
    "wide": "the scale is max / 2^(bits-1); with symmetric levels from -m to m it is max / m, m = 2^(bits-1) - 1",
    "positive": "the scale comes from the largest value, not from the largest absolute value",
    "zero left out": "0 was not taken into the range; the zero point of such numbers is clipped",
    "truncated zero": "the zero point was cut off, not rounded",
    "truncated": "numbers were cut off to whole ones, not rounded",
    "exact scale": "numbers were divided by the scale before it was stored; what is stored is what will be multiplied",
    "never symmetric": "this is what symmetric=False gives",
    "always symmetric": "this is what symmetric=True gives",
}


def parts_of(
    shape: Sequence[int], dim: int | None = None, group_size: int | None = None
) -> tuple[tuple[int, ...], Callable[[tuple[int, ...]], tuple[int, ...]]]:
    """The shape of the scales, and for the place of a number the place of its scale.

    >>> shape, scale_at = parts_of((2, 6), group_size=3)
    >>> shape, scale_at((1, 4))
    ((2, 2), (1, 1))
    """
    if group_size is not None:
        return (*shape[:-1], shape[-1] // group_size), lambda place: (*place[:-1], place[-1] // group_size)
    if dim is not None:
        return (shape[dim],), lambda place: (place[dim],)
    return (), lambda place: ()


def by_definition(
    x: torch.Tensor,
    bits: int,
    dim: int | None = None,
    group_size: int | None = None,
    symmetric: bool = True,
    scale_dtype: torch.dtype = torch.float32,
    slip: str = "",
) -> dict[str, torch.Tensor]:
    """What quantising x [any shape] must give: "q" int64 like x, "scale" and "zero" (int64) of one shape, "back".

    >>> by_definition(torch.tensor([-1.0, 0.5, 2.0]), 4)["q"].tolist()   # scale 2/7
    [-4, 2, 7]
    """
    symmetric = {"never symmetric": False, "always symmetric": True}.get(slip, symmetric)
    shape, scale_at = parts_of(x.shape, dim, group_size)
    if slip == "apart" and shape:
        scale_at = lambda place: (*place[:-1], place[-1] % shape[-1])  # noqa: E731
    members: dict[tuple[int, ...], list[float]] = {place: [] for place in product(*map(range, shape))}
    places = list(product(*map(range, x.shape)))
    for place in places:
        members[scale_at(place)].append(float(x[place]))
    rules = {at: _rule(values, bits, symmetric, scale_dtype, slip) for at, values in members.items()}
    result = {"q": torch.zeros(x.shape, dtype=torch.int64), "scale": torch.zeros(shape, dtype=scale_dtype)}
    result |= {"zero": torch.zeros(shape, dtype=torch.int64), "back": torch.zeros(x.shape)}
    for at, (scale, zero, _, _, _) in rules.items():
        result["scale"][at], result["zero"][at] = scale, zero
    for place in places:
        scale, zero, low, high, divisor = rules[scale_at(place)]
        ratio = float(x[place]) / divisor if divisor else 0.0
        whole = math.trunc(ratio) if slip == "truncated" else round(ratio)
        result["q"][place] = min(max(whole + zero, low), high)
        result["back"][place] = (int(result["q"][place]) - zero) * scale
    return result


def _rule(
    values: list[float], bits: int, symmetric: bool, scale_dtype: torch.dtype, slip: str
) -> tuple[float, int, int, int, float]:
    """Scale, zero point, smallest and largest level, and what numbers are divided by."""
    if symmetric:
        low, high = -(2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1
        top = max(values, default=0.0) if slip == "positive" else max(map(abs, values), default=0.0)
        exact, bottom = top / (high + (slip == "wide")), 0.0
    else:
        low, high = 0, 2**bits - 1
        kept = values if slip == "zero left out" else [*values, 0.0]
        bottom = min(kept)
        exact = (max(kept) - bottom) / high
    scale = float(torch.tensor(exact, dtype=torch.float64).to(scale_dtype))
    divisor = exact if slip == "exact scale" else scale
    if symmetric or not divisor:
        return scale, 0, low, high, divisor
    zero = math.trunc(-bottom / divisor) if slip == "truncated zero" else round(-bottom / divisor)
    return scale, min(max(zero, low), high), low, high, divisor


def quantised_holds(
    row: Mapping[str, Any],
    x: torch.Tensor,
    what: str,
    bits: int,
    mistakes: Mapping[str, Mapping] | None = None,
    **how: Any,
) -> None:
    """`row` has "q", "scale", "zero" and "back" of x by the definition; numbers halfway between levels go either way.

    Args:
        row: what came back for this case.
        mistakes: sentence -> other arguments of `by_definition`, beside the slips that are always looked for.
        how: dim, group_size, symmetric, scale_dtype.

    >>> x = torch.tensor([-1.0, 0.5, 2.0])
    >>> quantised_holds(by_definition(x, 4, slip="wide"), x, "quantise", 4)
    Traceback (most recent call last):
    CheckFailed: quantise, scale: the scale is max / 2^(bits-1); with symmetric levels from -m to m it is ...
    """
    want = by_definition(x, bits, **how)
    for name, dtype in (("scale", how.get("scale_dtype", torch.float32)), ("q", None), ("zero", None)):
        _form(row[name], want[name], dtype, f"{what}, {name}", x.shape)
    others = {SLIPS[slip]: {**how, "slip": slip} for slip in SLIPS} | dict(mistakes or {})
    given = {sentence: by_definition(x, bits, **other) for sentence, other in others.items()}
    for name in ("scale", "zero"):
        likes = {sentence: other[name].double() for sentence, other in given.items() if
                 other[name].shape == want[name].shape}  # fmt: skip
        seen = row[name].double()
        _finite(seen, f"{what}, {name}")
        outcome(seen, want[name].double(), f"{what}, {name}", likes, rtol=1e-5, atol=1e-42)
    q = row["q"].long()
    ties = _ties(x, want["scale"], how) & ((q - want["q"]).abs() == 1)
    likes = {sentence: other["q"] for sentence, other in given.items()}
    outcome(torch.where(ties, want["q"], q), want["q"], f"{what}, q", likes)


def _form(got: object, want: torch.Tensor, dtype: torch.dtype | None, what: str, shape: Sequence[int]) -> None:
    if not isinstance(got, torch.Tensor):
        raise CheckFailed(f"{what} is {type(got).__name__}; a tensor is wanted.")
    if got.shape != want.shape:
        dims = [dim for dim in (None, *range(len(shape))) if parts_of(shape, dim)[0] == tuple(got.shape)]
        whose = f"; dim={dims[0]} has that shape" if dims else ""
        raise CheckFailed(f"{what} has shape {tuple(got.shape)}, wanted {tuple(want.shape)}{whose}.")
    if dtype is None and (got.is_floating_point() or got.element_size() > 1):
        raise CheckFailed(f"{what} has type {got.dtype}; whole numbers of one byte are wanted, int8 or uint8.")
    if dtype is not None and got.dtype != dtype:
        raise CheckFailed(f"{what} has type {got.dtype}, wanted {dtype}.")


def _finite(got: torch.Tensor, what: str) -> None:
    if not bool(got.isfinite().all()):
        raise CheckFailed(f"{what} holds NaN or infinity: was something divided by a scale of 0?")


def _ties(x: torch.Tensor, scale: torch.Tensor, how: Mapping[str, Any]) -> torch.Tensor:
    """Where a number is halfway between two levels, or so near to it that float32 cannot tell."""
    scale_at = parts_of(x.shape, how.get("dim"), how.get("group_size"))[1]
    found = torch.zeros(x.shape, dtype=torch.bool)
    for place in product(*map(range, x.shape)):
        step = float(scale[scale_at(place)])
        ratio = float(x[place]) / step if step else 0.0
        found[place] = abs(ratio - math.floor(ratio) - 0.5) < TIE
    return found


def rounded_in_order(
    weight: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, bits: int, damp: float = 0.01, slip: str = ""
) -> torch.Tensor:
    """Levels [O, I] of weight [O, I]: input after input is rounded, and the rest then changed to make up for it.

    The rest is what makes |x w' - x w|^2 + d |w' - w|^2 least, d = damp times the mean over the inputs of |x_i|^2.

    Args:
        x: [N, I], the calibration inputs.
        scale: [O, G], one for I/G inputs that stand side by side.
        slip: "" or "nearest", "backwards" (last input first), "undamped", "one by one" (each error goes to the next
            input only), "no clamp".
    """
    inputs, top = weight.shape[1], 2 ** (bits - 1) - 1
    steps = scale.double().repeat_interleave(inputs // scale.shape[1], 1)
    gram = x.double().t() @ x.double()
    gram = gram + (1e-9 if slip == "undamped" else damp) * gram.diagonal().mean() * torch.eye(inputs).double()
    order = list(range(inputs))[:: -1 if slip == "backwards" else 1]
    moved, q = weight.double().clone(), torch.zeros(weight.shape, dtype=torch.int64)
    for number, i in enumerate(order):
        ratio = torch.where(steps[:, i] > 0, moved[:, i] / steps[:, i], 0.0)
        q[:, i] = ratio.round().clamp(*((-9999, 9999) if slip == "no clamp" else (-top, top))).long()
        done, rest = order[: number + 1], order[number + 1 :]
        if slip == "one by one":
            done, rest = [i], rest[:1]
        if rest and slip != "nearest" and bool(gram.diagonal().any()):
            error = q[:, done] * steps[:, done] - (moved if slip == "one by one" else weight.double())[:, done]
            pull = torch.linalg.solve(gram[rest][:, rest], gram[rest][:, done] @ error.t())
            moved[:, rest] = (moved if slip == "one by one" else weight.double())[:, rest] - pull.t()
    return q


def output_error(weight: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> float:
    """|x w' - x w| / |x w| in float64: how far the outputs are off; arguments as in `rounded_in_order`.

    >>> output_error(torch.ones(1, 2), torch.tensor([[1, 0]]), torch.ones(1, 1), torch.eye(2))
    0.7071067811865476
    """
    steps = scale.double().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
    exact = x.double() @ weight.double().t()
    return float((x.double() @ (q.double() * steps).t() - exact).norm() / exact.norm())


def same_bits(got: object, want: torch.Tensor, what: str, mistakes: Mapping[str, torch.Tensor]) -> None:
    """`got` holds the very bits of `want`, a float32 tensor.

    >>> same_bits(torch.tensor([0.1]) + 1e-8, torch.tensor([0.1]), "decode", {})
    Traceback (most recent call last):
    CheckFailed: decode: 1 of 1 numbers have other bits: element 0 is off by 7.45e-09. ...
    """
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
        agree(got, want, what)
    if torch.equal(got.view(torch.int32), want.view(torch.int32)):
        return
    for sentence, other in mistakes.items():
        if other.shape == got.shape and torch.equal(got.view(torch.int32), other.float().view(torch.int32)):
            raise CheckFailed(f"{what}: {sentence}.")
    agree(got, want, what, rtol=1e-3, atol=1e-6)
    off = (got.view(torch.int32) != want.view(torch.int32)).flatten()
    first = int(off.int().argmax())
    gap = float((got - want).abs().flatten()[first])
    raise CheckFailed(f"{what}: {int(off.sum())} of {off.numel()} numbers have other bits: element {first} is off by "
                      f"{gap:.3g}. Multiply and add in float32, in the order of the formula.")  # fmt: skip


def gguf_imported() -> bool:
    """Whether the gguf library was loaded in this process; it unpacks blocks, and an answer is to do that itself."""
    return "gguf" in sys.modules
