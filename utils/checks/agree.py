"""Does a tensor, or a dictionary of named tensors, agree with an oracle, and if not, what does it look like?

The idea: mistakes of distributed training are mostly a constant factor (summed and never divided, divided
twice, averaged over the wrong count). So the worst tensor is held to k times what is wanted for each suspect
k, and the sentence that belongs to the k that fits is what the student reads. Left out: which line is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from utils.checks.failed import CheckFailed
from utils.checks.words import listed, number_of, short

FACTOR_RTOL = 2e-3  # how closely a factor must fit before it is named
MANY_NAMES = 4


def agree(
    got: object,
    want: torch.Tensor | Mapping[str, torch.Tensor | None],
    what: str,
    *,
    suspects: Mapping[str, float] | None = None,
    resembles: Mapping[str, torch.Tensor | Mapping[str, torch.Tensor]] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-6,
) -> None:
    """`got` is `want`: a tensor, or a dictionary of tensors with the same names.

    Args:
        got: what came back from a rank.
        want: the oracle's; None under a name: that name may hold anything.
        what: the values and the case, for the message: "gradients (p = 3, rank 1)".
        suspects: sentence -> k. Where the wrong tensors are k times the wanted ones the message says the
            sentence, which reads on from "is 4 times what is wanted: ".
        resembles: sentence -> values shaped like `want`. Where the worst tensor holds these instead, and no
            suspect fits, the message says the sentence, which reads on from "is not what is wanted: ".
        rtol, atol: |got - want| <= atol + rtol |want| for each element, as in `torch.allclose`; NaN is
            wrong, and whole numbers must be equal.

    Raises:
        CheckFailed: names the worst tensor and what it looks like.

    >>> agree({"w": torch.tensor([8.0, 4.0])}, {"w": torch.tensor([2.0, 1.0])}, "gradients",
    ...       suspects={"summed over the 4 ranks but never divided": 4.0})
    Traceback (most recent call last):
    CheckFailed: gradients: "w" is 4 times what is wanted: summed over the 4 ranks but never divided.
    """
    resembles = dict(resembles or {})
    if not isinstance(want, Mapping):
        got, want = {"": got}, {"": want}
        resembles = {sentence: {"": other} for sentence, other in resembles.items()}
    if not isinstance(got, Mapping):
        raise CheckFailed(f"{what}: {_kind(got)} came back; a dictionary of tensors is wanted.")
    _same_names(got, want, what)
    looked_at = [name for name, tensor in want.items() if tensor is not None]
    for name in looked_at:
        _comparable(got[name], want[name], f"{what}: {_titled(name)}")
    off = {name: _excess(got[name], want[name], rtol, atol) for name in looked_at}
    wrong = [name for name in looked_at if off[name] > 1]
    if wrong:
        worst = max(wrong, key=off.get)
        together = "" if len(looked_at) == 1 else f" ({_together(wrong, looked_at)})"
        likes = {sentence: others[worst] for sentence, others in resembles.items() if worst in others}
        seen = _seen(got[worst], want[worst], suspects or {}, likes, rtol, atol)
        stop = "" if seen.endswith("?") else "."
        raise CheckFailed(f"{what}: {_titled(worst)} is {seen}{stop}{together}")


def close(got: object, want: torch.Tensor, rtol: float, atol: float) -> bool:
    """Whether `got` is a tensor of the shape of `want` and near it, element by element, whatever the number types.

    >>> close(torch.ones(2), torch.ones(2, dtype=torch.float64), 1e-6, 0), close(None, torch.ones(2), 1, 1)
    (True, False)
    """
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        return False
    a, b = _flat(got), _flat(want)
    if a.dtype != b.dtype:  # whole numbers beside others
        a, b = a.double(), b.double()
    return torch.allclose(a, b, rtol=rtol, atol=atol)


def _same_names(got: Mapping, want: Mapping, what: str) -> None:
    missing = [name for name in want if name not in got]
    extra = [name for name in got if name not in want]
    if missing:
        there = f"; there {_is_are(got)} {_some(list(got))}" if got else "; there are no names at all"
        raise CheckFailed(f"{what}: {_some(missing)} {'is' if len(missing) == 1 else 'are'} missing{there}.")
    if extra:
        raise CheckFailed(f"{what}: {_some(extra)} should not be there.")


def _comparable(got: object, want: torch.Tensor, what: str) -> None:
    """`got` is a tensor of the wanted shape and type, without NaN."""
    if got is None:
        raise CheckFailed(f"{what} is None: nothing was ever stored there.")
    if not isinstance(got, torch.Tensor):
        raise CheckFailed(f"{what} is {_kind(got)}; a tensor is wanted.")
    if got.shape != want.shape:
        raise CheckFailed(f"{what} has shape {tuple(got.shape)}, wanted {tuple(want.shape)}.")
    if got.dtype != want.dtype:
        raise CheckFailed(f"{what} has type {got.dtype}, wanted {want.dtype}.")
    bad = ~torch.isfinite(_flat(got)) & torch.isfinite(_flat(want))
    if bool(bad.any()):
        index = int(bad.nonzero()[0])
        seen = f"{number_of(int(bad.sum()), 'value')} of {bad.numel()}, the first at {_place(want, index)}"
        raise CheckFailed(f"{what} holds NaN or infinity ({seen}).")


def _excess(got: torch.Tensor, want: torch.Tensor, rtol: float, atol: float) -> float:
    """The largest difference in units of what is allowed: above 1 is wrong."""
    if want.numel() == 0:
        return 0.0
    a, b = _flat(got), _flat(want)
    if rtol == atol == 0 or not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else float("inf")
    over = (a - b).abs() / (atol + rtol * b.abs())
    return float(torch.where(a == b, 0.0, over.nan_to_num(nan=float("inf"))).max())


def _seen(got, want, suspects, likes, rtol, atol) -> str:
    """What the worst tensor looks like, reading on from "is"."""
    a, b = _flat(got), _flat(want)
    named = _named_factor(a, b, suspects)
    if named is not None:
        return f"{_times(suspects[named])} what is wanted: {named}"
    like = _likest(a, likes)
    if like is not None:
        return f"not what is wanted: {like}"
    if not bool(a.any()):
        return "exactly 0"
    k = _plain_factor(a, b)
    if k is not None:
        return f"{_times(k)} what is wanted" + (": the sign is wrong" if abs(k + 1) < FACTOR_RTOL else "")
    index = int((a - b).abs().argmax())
    values = f"{_place(want, index)} is {short(a[index].item())}, wanted {short(b[index].item())}"
    if short(a[index].item()) == short(b[index].item()):
        gap = short(float((a - b).abs()[index]))
        values = f"{_place(want, index)} is off by {gap}: was a less precise number type used on the way?"
    count = int(((a - b).abs() > atol + rtol * b.abs()).sum())
    scope = "" if a.numel() == 1 else f"{count} of {number_of(a.numel(), 'element')}; "
    return f"wrong: {scope}{values}"


def _named_factor(a: torch.Tensor, b: torch.Tensor, suspects: Mapping[str, float]) -> str | None:
    """The sentence of the suspect k for which a is closest to k times b."""
    if not bool(b.any()):
        return None
    fits = {sentence: _misfit(a, b, k) for sentence, k in suspects.items() if k != 1}
    best = min(fits, key=fits.get, default=None)
    return best if best is not None and fits[best] < FACTOR_RTOL else None


def _likest(a: torch.Tensor, likes: Mapping[str, torch.Tensor | None]) -> str | None:
    """The sentence whose values a holds, or nearly."""
    fits = {sentence: _misfit(a, _flat(other), 1.0) for sentence, other in likes.items() if other is not None}
    best = min(fits, key=fits.get, default=None)
    return best if best is not None and fits[best] < FACTOR_RTOL else None


def _plain_factor(a: torch.Tensor, b: torch.Tensor) -> float | None:
    """k where a is k times b; a factor that nobody suspected needs two elements to be believed."""
    if int((b != 0).sum()) < 2:
        return None
    a, b = a.double(), b.double()
    k = float((a @ b) / (b @ b))
    return k if abs(k - 1) > 5 * FACTOR_RTOL and _misfit(a, b, k) < FACTOR_RTOL else None


def _misfit(a: torch.Tensor, b: torch.Tensor, k: float) -> float:
    """How far a is from k b, in units of the larger of them."""
    a, b = a.double(), b.double()
    scale = max(float((k * b).norm()), float(a.norm()))
    return float((a - k * b).norm()) / scale if scale else 0.0


def _together(wrong: Sequence[str], looked_at: Sequence[str]) -> str:
    if len(wrong) == len(looked_at):
        return f"all {len(looked_at)} tensors are wrong"
    return f"{len(wrong)} of {len(looked_at)} tensors {'is' if len(wrong) == 1 else 'are'} wrong: {_some(wrong)}"


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in one row, as float64, whole numbers as int64: no digit is lost."""
    flat = tensor.detach().cpu().reshape(-1)
    return flat.double() if flat.is_floating_point() else flat.to(torch.int64)


def _place(tensor: torch.Tensor, index: int) -> str:
    place = [int(i) for i in torch.unravel_index(torch.tensor(index), tensor.shape)] if tensor.ndim else []
    return f"element {place}" if place else "its value"


def _times(k: float) -> str:
    for n in range(2, 65):
        if abs(k * n - 1) < FACTOR_RTOL:
            return f"1/{n} of"
    return f"{k:.4g} times"


def _titled(name: str) -> str:
    return f'"{name}"' if name else "the tensor"


def _some(names: Sequence[str]) -> str:
    shown = [f'"{name}"' for name in names[:MANY_NAMES]]
    rest = len(names) - len(shown)
    return listed([*shown, f"{rest} more"] if rest else shown)


def _is_are(items: Sequence) -> str:
    return "is" if len(items) == 1 else "are"


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
