"""Numbers that carry the name of the rank they came from.

Rank r writes its element i as (i + 1) * 10**r: rank 0 holds 1, 2, 3, rank 1 holds 10, 20, 30, rank 2 holds
100, 200, 300. Sums then show who was added: a second element of 220 has ranks 1 and 2 in it once each, 440
has them twice. Zero is "nothing here yet". So a picture is coloured from the data, not from what it should
be.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

MAX_RANKS = 8
MAX_MARKS = 9


def marks(rank: int, numel: int) -> torch.Tensor:
    """The numbers that rank `rank` starts with: int64 tensor of shape [numel].

    numel is at most 9 and rank at most 7, so that every digit belongs to one rank; else ValueError.

    >>> marks(2, 3).tolist()
    [100, 200, 300]
    """
    if not 0 <= rank < MAX_RANKS:
        raise ValueError(f"rank {rank} has no mark: ranks 0 to {MAX_RANKS - 1} have one digit each")
    if not 0 <= numel <= MAX_MARKS:
        raise ValueError(f"{numel} elements cannot be marked: a digit counts to {MAX_MARKS}")
    return (torch.arange(numel) + 1) * 10**rank


def origins(value: int | None) -> tuple[int, ...]:
    """Ranks whose numbers are in a held value, lowest first; () for 0 and None.

    >>> origins(3030), origins(0)
    ((1, 3), ())
    """
    digits = str(abs(int(value or 0)))[::-1]
    return tuple(rank for rank, digit in enumerate(digits) if digit != "0")


def row(held: torch.Tensor | Sequence[int | None] | int | None) -> list[int]:
    """What one rank holds as a flat list of ints; None (it holds nothing) is an empty list.

    >>> row(torch.tensor([[1, 2], [3, 4]])), row(None), row(7)
    ([1, 2, 3, 4], [], [7])
    """
    if held is None:
        return []
    if isinstance(held, int):
        return [held]
    if isinstance(held, torch.Tensor):
        return [int(v) for v in held.reshape(-1).tolist()]
    return [value for part in held for value in (row(part) if part is not None else [0])]
