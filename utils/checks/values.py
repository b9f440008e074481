"""Do ranks hold the right numbers, and if not, which misconception do the numbers look like?

The idea: take the elements that are wrong, and see what they hold instead. Their rank's own input, another
rank's, a multiple of what is wanted, a sum that lacks one rank's share: each points to a different mistake.
Comparison is exact unless a tolerance is given. Left out: which line is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from utils.checks.failed import CheckFailed
from utils.checks.words import element, elements, number_of, ranks_text, singular

Tensors = Sequence[torch.Tensor | None]


def ranks_hold(
    got: Sequence[object],
    want: Tensors,
    what: str,
    inputs: Tensors | None = None,
    *,
    unwritten: float | None = None,
    overwritten: float | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Each rank's tensor has the wanted type, shape and values.

    Args:
        got: by rank, what came back from the ranks.
        want: by rank, the right tensor; None: this rank is not looked at.
        what: the operation and the case, for the message.
        inputs: by rank, what each rank put in, shaped like `want`; lets the message name a misconception.
        unwritten: the value that the memory had before the call.
        overwritten: the value that the caller writes into its tensors as soon as the call is over.
        rtol, atol: tolerances as in `torch.allclose`; both 0 means exact (NaN is never right).

    Raises:
        CheckFailed: "ring: ranks 1 and 2 of 3 are wrong. Rank 1: all 4 elements still ...".

    >>> ranks_hold([torch.tensor([5.0]), torch.tensor([2.0])], [torch.tensor([5.0])] * 2, "sum")
    Traceback (most recent call last):
    CheckFailed: sum: only rank 0 is right. Rank 1: element 0 is wrong (element 0 is 2, not 5).
    """
    if len(got) != len(want):
        raise CheckFailed(f"{what}: {len(want)} ranks were asked and {len(got)} answered.")
    looked_at = [rank for rank, tensor in enumerate(want) if tensor is not None]
    wrong = [rank for rank in looked_at if not _right(got[rank], want[rank], rtol, atol)]
    if wrong:
        sentence = _explain(wrong[0], got[wrong[0]], want, inputs, (unwritten, overwritten), rtol, atol)
        raise CheckFailed(f"{what}: {_who(wrong, looked_at)}{sentence}")


def unchanged(got: Sequence[object], inputs: Tensors, what: str) -> None:
    """Each rank's input is what it was before the call; `inputs[rank]` None means not looked at.

    >>> unchanged([torch.tensor([4.0, 2.0])], [torch.tensor([1.0, 2.0])], "reduce")
    Traceback (most recent call last):
    CheckFailed: reduce: rank 0's x must stay unchanged, but element 0 was 1 and is 4 now.
    """
    for rank, before in enumerate(inputs):
        if before is None or _right(got[rank], before, 0, 0):
            continue
        after = got[rank]
        if not isinstance(after, torch.Tensor) or after.shape != before.shape or after.dtype != before.dtype:
            raise CheckFailed(f"{what}: rank {rank}'s x must stay unchanged, but its type or shape changed.")
        index = int(_wrong_at(after, before, 0, 0).nonzero()[0])
        old, new = element(before, index), element(after, index)
        raise CheckFailed(
            f"{what}: rank {rank}'s x must stay unchanged, but element {index} was {old} and is {new} now."
        )


def _right(got: object, want: torch.Tensor, rtol: float, atol: float) -> bool:
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
        return False
    return not bool(_wrong_at(got, want, rtol, atol).any())


def _wrong_at(got: torch.Tensor, want: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """A flat mask of the elements that differ."""
    a, b = got.detach().cpu().reshape(-1), want.detach().cpu().reshape(-1)
    if rtol == 0 and atol == 0:
        return a != b
    return ~torch.isclose(a.double(), b.double(), rtol=rtol, atol=atol)


def _who(wrong: list[int], looked_at: list[int]) -> str:
    right = [rank for rank in looked_at if rank not in wrong]
    if len(right) == 1 and len(wrong) >= 1:
        return f"only rank {right[0]} is right. "
    if len(wrong) > 1:
        return f"{ranks_text(wrong)} of {len(looked_at)} are wrong. "
    return ""


def _explain(rank, got, want, inputs, sentinels, rtol, atol) -> str:
    """One sentence on rank `rank`, whose tensor `got` is not `want[rank]`."""
    right = want[rank]
    if got is None:
        return f"Rank {rank}: the result is None; a tensor is wanted. Does the function return it?"
    if not isinstance(got, torch.Tensor):
        return f"Rank {rank}: the result is {type(got).__name__}; a tensor is wanted."
    if got.dtype != right.dtype:
        return f"Rank {rank}: the result's type is {got.dtype}; it must stay {right.dtype}."
    if got.shape != right.shape:
        return _shape_sentence(rank, got, right, inputs)
    got, right = got.detach().cpu().reshape(-1), right.detach().cpu().reshape(-1)
    mask = _wrong_at(got, right, rtol, atol)
    index = int(mask.nonzero()[0])
    seen = f"element {index} is {element(got, index)}, not {element(right, index)}"
    cause = _cause(rank, got, want, inputs, *sentinels, mask)
    text = cause or "are wrong"
    if int(mask.sum()) == 1:
        text = singular(text)
    return f"Rank {rank}: {elements(mask)} {text} ({seen})."


def _shape_sentence(rank: int, got: torch.Tensor, right: torch.Tensor, inputs: Tensors | None) -> str:
    text = f"Rank {rank}: the result has shape {tuple(got.shape)}, wanted {tuple(right.shape)}"
    a, b = got.reshape(-1), right.reshape(-1)
    if 0 < a.numel() < b.numel() and torch.equal(a, b[: a.numel()]):
        dropped = number_of(b.numel() - a.numel(), "element")
        return f"{text}: the last {dropped} got lost (the remainder of the division?)."
    if inputs is not None and inputs[rank] is not None and torch.equal(a, inputs[rank].reshape(-1)):
        return f"{text}: it is the rank's own input."
    return f"{text}."


def _cause(rank, got, want, inputs, unwritten, overwritten, mask) -> str | None:
    """What the wrong elements hold instead, in words, or None."""
    a, b = _wide(got[mask]), _wide(want[rank].cpu().reshape(-1)[mask])
    if a.is_floating_point() and bool(a.isnan().any()):
        return "hold NaN: memory that was never written?"
    if unwritten is not None and bool((a == unwritten).all()):
        return "were never written: they hold what was there before the call"
    shares = _shares(rank, inputs, got, mask)
    if overwritten is not None and _mixed_in(overwritten, a, b, shares):
        return (
            f"contain {overwritten}, which the caller wrote after the call was over: a send not waited for?"
        )
    for test in (_own_or_foreign, _factor, _share, _rounded, _unreduced):
        cause = test(rank, a, b, shares)
        if cause:
            return cause
    return _misplaced(rank, got, want)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Whole numbers as int64, all others as float64: no digit is lost."""
    return tensor.double() if tensor.is_floating_point() else tensor.to(torch.int64)


def _shares(
    rank: int, inputs: Tensors | None, got: torch.Tensor, mask: torch.Tensor
) -> dict[int, torch.Tensor]:
    """By rank, the input's elements at the wrong places, where shapes fit; the rank itself comes first."""
    if inputs is None:
        return {}
    order = [rank] + [other for other in range(len(inputs)) if other != rank]
    fitting = [r for r in order if inputs[r] is not None and inputs[r].numel() == got.numel()]
    return {r: _wide(inputs[r].cpu().reshape(-1)[mask]) for r in fitting}


def _mixed_in(value: float, a, b, shares) -> bool:
    """The value stands alone, or in place of one rank's share of a sum."""
    places = [a == value] + [a == b - share + value for share in shares.values()]
    return bool(torch.stack(places).any(0).all())


def _own_or_foreign(rank, a, b, shares) -> str | None:
    for other, share in shares.items():
        if torch.equal(a, share):
            return "still hold the rank's own input" if other == rank else f"hold rank {other}'s input"
    return None


def _factor(rank, a, b, shares) -> str | None:
    """A constant factor between what is held and what is wanted."""
    a, b = a.double(), b.double()
    if len(a) < 2 and len(shares) < 2:
        return None
    for k in range(2, 17):
        if torch.equal(a, k * b):
            return f"are {k} times the wanted values: was something added more than once?"
    for k in range(2, len(shares) + 1):
        if torch.allclose(a * k, b, rtol=1e-2, atol=0):
            return f"are 1/{k} of the wanted values: divided by the number of ranks? A sum is wanted"
    if len(a) >= 2 and bool((a != 0).all()) and bool((b != 0).all()):
        ratio = b / a
        if bool(torch.isclose(ratio, ratio[0], rtol=1e-4).all()) and abs(float(ratio[0]) - 1) > 1e-3:
            return f"are the wanted values divided by {float(ratio[0]):g}"
    return None


def _share(rank, a, b, shares) -> str | None:
    """A sum that lacks one rank's share, or has it twice."""
    for other, share in shares.items():
        name = "its own" if other == rank else f"rank {other}'s"
        if torch.equal(a, b - share):
            return f"lack {name} share of the sum"
        if torch.equal(a, b + share):
            return f"have {name} share in the sum twice"
    return None


def _rounded(rank, a, b, shares) -> str | None:
    if torch.allclose(a.double(), b.double(), rtol=1e-6, atol=0):
        return "are rounded: was another number type used on the way?"
    return None


def _unreduced(rank, a, b, shares) -> str | None:
    if len(a) > 1 and shares and bool(torch.stack([a == share for share in shares.values()]).any(0).all()):
        return "hold one rank's input each: nothing was added"
    return None


def _misplaced(rank: int, got: torch.Tensor, want: Tensors) -> str | None:
    """The right values of another rank, or the right chunks in another order."""
    for other, tensor in enumerate(want):
        fits = other != rank and tensor is not None and tensor.numel() == got.numel() > 0
        if fits and torch.equal(got, tensor.reshape(-1).cpu()):
            return f"hold what belongs to rank {other}"
    world = len(want)
    chunks = want[rank].reshape(-1).cpu().tensor_split(world)
    for shift in range(1, world):
        if torch.equal(got, torch.cat(chunks[shift:] + chunks[:shift])):
            return f"hold the right chunks in the wrong order: rotated by {shift}"
    return None
