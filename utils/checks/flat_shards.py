"""Flat vectors cut into equal shards: is the padding where it belongs, and whose is each element?

Tensors laid end to end, zeros up to a multiple of p, rank r owns the r-th of p equal pieces. The mistakes that
people make here all concern the padding: how much, on whose shard, and whether it travels as if it were data
(ZeRO's own implementations had each of them).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from utils.checks.agree import agree
from utils.checks.failed import CheckFailed
from utils.checks.words import number_of, short


def layout(got: object, sizes: Sequence[int], what: str) -> None:
    """`got` is (padded length, elements by rank that are not padding).

    >>> layout((8, [2, 2, 2, -1]), [2, 2, 1, 0], "shard_layout(5, 4)")
    Traceback (most recent call last):
    CheckFailed: shard_layout(5, 4): the sizes are [2, 2, 2, -1] ... all padding was taken off the last rank ...
    """
    ranks, numel = len(sizes), sum(sizes)
    if not isinstance(got, (tuple, list)) or len(got) != 2 or not isinstance(got[1], (list, tuple)):
        raise CheckFailed(f"{what} returned {got!r}; (padded, sizes) is wanted, a number and a list.")
    padded, mine = got[0], list(got[1])
    if padded != numel + -numel % ranks:
        raise CheckFailed(f"{what}: the padded length is {padded}{_why_padded(padded, numel, ranks)}.")
    if mine != list(sizes):
        raise CheckFailed(f"{what}: the sizes are {mine}{_why_sizes(mine, numel, ranks)}.")


def _why_padded(padded: object, numel: int, ranks: int) -> str:
    if padded == numel + numel % ranks:
        return (
            f", {numel} + {numel} % {ranks}: n % p is what is left over, not what is missing to the next multiple of p"
        )
    if not isinstance(padded, int):
        return "; a whole number is wanted"
    if padded % ranks:
        return f", which {ranks} does not divide"
    return f"; the smallest multiple of {ranks} that is at least {numel} is wanted"


def _why_sizes(mine: list, numel: int, ranks: int) -> str:
    if len(mine) != ranks:
        return f"; {number_of(ranks, 'number')} are wanted, one a rank"
    shard = -(-numel // ranks)
    last_only = [shard] * (ranks - 1) + [numel - shard * (ranks - 1)]
    if mine in (last_only, [max(size, 0) for size in last_only]):
        return ": all padding was taken off the last rank, but it can fall on several"
    if mine == [shard] * ranks:
        return ": the padding is counted as elements"
    if sum(mine) == numel:
        return f": shards are cut at multiples of {shard}, so only the last ones can be short"
    return f", {sum(mine)} together; there are {numel} elements"


def padded_vector(got: object, want: torch.Tensor, numel: int, what: str) -> None:
    """`got` is the flat vector `want`, whose elements from `numel` on are padding."""
    if isinstance(got, torch.Tensor) and got.dim() == 1 and len(got) != len(want):
        raise CheckFailed(
            f"{what}: the flat vector has {len(got)} elements, wanted {len(want)}: {numel} and "
            f"{len(want) - numel} of padding."
        )
    wrong = isinstance(got, torch.Tensor) and got.shape == want.shape and not torch.equal(got, want)
    if wrong and torch.equal(got[:numel], want[:numel]):
        raise CheckFailed(f"{what}: the padding is {got[numel:].tolist()}; it must be zeros.")
    if wrong and torch.equal(got.sort().values, want.sort().values):
        raise CheckFailed(f"{what}: the right elements in another order; they go row by row, whatever the strides are.")
    agree(got, want, what, rtol=0, atol=0)


def segments(got: Mapping, owners: Sequence[int], decays: Sequence[bool], what: str) -> None:
    """The pieces of one shard: each a view, of the right length, in the right list.

    Args:
        got: "sizes": [lengths of decayed, lengths of rest]; "shard" and "grad": what they hold after k was
            added to piece k's gradient (counted from 1 through both lists), and k or -k to the piece itself (minus
            in the second list).
        owners: for each element of the shard that is not padding, the number of its parameter.
        decays: for each parameter, whether it is to be decayed.
    """
    want: tuple[list[int], list[int]] = ([], [])
    stretches = [(owner, owners.count(owner)) for owner in dict.fromkeys(owners)]
    for owner, count in stretches:
        want[0 if decays[owner] else 1].append(count)
    sizes = got["sizes"]
    for name, seen, right in zip(("decayed", "rest"), sizes, want, strict=True):
        if seen != right:
            raise CheckFailed(f"{what}: {name} has pieces of {seen} elements, wanted {right}{_why(sizes, want)}.")
    marks = torch.zeros(len(got["shard"]))
    numbers = {"decayed": 0, "rest": len(want[0])}
    place = 0
    for owner, count in stretches:
        key = "decayed" if decays[owner] else "rest"
        numbers[key] += 1
        marks[place : place + count] = numbers[key] if decays[owner] else -numbers[key]
        place += count
    for name, right in (("shard", marks), ("grad", marks.abs())):
        _written(got[name], right, name, what)


def _why(sizes: Sequence[list[int]], want: Sequence[list[int]]) -> str:
    total, right = sum(map(sum, sizes)), sum(map(sum, want))
    if total > right:
        return f": {total} elements in all, where {right} of the shard belong to parameters. Is there padding in it?"
    if total < right:
        return f": {total} elements in all, where {right} of the shard belong to parameters"
    if not sizes[0] or not sizes[1]:
        return ": parameters with two dimensions or more belong to decayed, the others to rest"
    return ": one piece for each stretch that belongs to one parameter"


def _written(got: torch.Tensor, right: torch.Tensor, name: str, what: str) -> None:
    if torch.equal(got, right):
        return
    if not bool(got.any()) and bool(right.any()):
        thing = "pieces" if name == "shard" else "gradients of the pieces"
        raise CheckFailed(f"{what}: what is written to the {thing} does not reach `{name}`: they are copies.")
    raise CheckFailed(
        f"{what}: the pieces were numbered and the numbers written to them; `{name}` now holds {got.tolist()}, "
        f"wanted {right.tolist()}: they are views of other places."
    )


def accumulated(
    got: torch.Tensor, want: torch.Tensor, before: torch.Tensor, what: str, suspects: Mapping[str, float]
) -> None:
    """The gradients in a shard: what was there `before` and the new mean."""
    same_shape = isinstance(got, torch.Tensor) and got.shape == want.shape
    if same_shape and bool(before.any()) and torch.allclose(got, want - before) and not torch.allclose(got, want):
        raise CheckFailed(f"{what}: only the newest gradients are there; they must be added to what was there before.")
    agree(got, want, what, suspects=suspects, rtol=1e-5)


def saved_share(part: object, most: int, what: str) -> None:
    """A rank saved no more than its share: at most `most` elements in all tensors and lists."""
    count = _elements(part)
    if count > most:
        raise CheckFailed(f"{what} saves {count} elements; its own share of all vectors is at most {most}.")


def _elements(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, Mapping):
        return sum(map(_elements, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(_elements, value))
    return 1


def resharded(parts: Sequence[object], whole: torch.Tensor, old: int, what: str) -> None:
    """The shards that were loaded, in rank order, are the `whole` vector cut anew, with zeros as padding."""
    ranks, numel = len(parts), len(whole)
    length = -(-numel // ranks)
    for rank, part in enumerate(parts):
        if not isinstance(part, torch.Tensor) or part.shape != (length,):
            shape = tuple(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
            raise CheckFailed(
                f"{what}: rank {rank} of {ranks} gets {shape}; with {numel} elements a shard is {length} long"
                f"{_old_padding(parts, whole, old)}."
            )
    got = torch.cat(list(parts))
    if torch.equal(got[:numel], whole) and not got[numel:].any():
        return
    if bool(got[:numel].isnan().any()):
        place = int(got[:numel].isnan().nonzero()[0])
        raise CheckFailed(
            f"{what}, loaded by {ranks}: element {place} is what was in the padding: the padding of {old} ranks "
            "was taken for data."
        )
    if torch.equal(got[:numel], whole):
        why = f": the padding of {old} ranks was taken for data" if got[numel:].isnan().any() else ""
        seen = f"the new padding is {got[numel:].tolist()}; it must be zeros"
        raise CheckFailed(f"{what}, loaded by {ranks}: {seen}{why}.")
    place = int((got[:numel] != whole).nonzero()[0])
    seen = f"element {place} is {short(float(got[place]))}, wanted {short(float(whole[place]))}"
    raise CheckFailed(f"{what}, loaded by {ranks}: {seen}.")


def _old_padding(parts: Sequence[object], whole: torch.Tensor, old: int) -> str:
    padded = len(whole) + -len(whole) % old
    total = sum(part.numel() for part in parts if isinstance(part, torch.Tensor))
    if padded != len(whole) and total == padded + -padded % len(parts):
        return f". The padding of {old} ranks was taken for data"
    return ""


def norm(
    got: object,
    want: float,
    squares: Sequence[Sequence[float]],
    copies: Sequence[float],
    tied: bool,
    rank: int,
    what: str,
) -> None:
    """The global 2-norm; a wrong one is held to the norms that known mistakes give.

    Args:
        squares: by rank, the sum of squares of each of its pieces; copies: of each replicated gradient.
        tied: the first piece and the first copy were given twice.
    """
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()
    if not isinstance(got, float):
        raise CheckFailed(f"{what}: rank {rank} got {type(got).__name__}; the norm as a float is wanted.")
    if math.isclose(got, want, rel_tol=1e-4):
        return
    pieces, whole, ranks = sum(map(sum, squares)), sum(copies), len(squares)
    extra = (sum(mine[0] for mine in squares if mine) + (copies[0] if copies else 0)) if tied else 0
    local = sum(squares[rank])
    mistakes = {
        "only this rank's pieces were counted: the squares have to be summed over the ranks": local + whole,
        "replicated gradients were counted once for every rank": pieces + ranks * whole,
        "replicated gradients were left out": pieces,
        "a tied gradient was counted twice": pieces + whole + extra,
        "norms were added, where squares have to be added": sum(math.sqrt(sum(m)) for m in squares) ** 2 + whole,
        "the root is missing": (pieces + whole) ** 2,
    }
    for cause, value in mistakes.items():
        if math.isclose(got * got, value, rel_tol=1e-3):
            raise CheckFailed(f"{what}: rank {rank} got the norm {short(got)}, wanted {short(want)}: {cause}.")
    raise CheckFailed(f"{what}: rank {rank} got the norm {short(got)}, wanted {short(want)}.")
