"""Where the elements of a parameter live, and what its gradient is right after the backward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch

KINDS = ("sharded", "replicated", "partial")


@dataclass(frozen=True)
class Placement:
    """How one parameter lies on a mesh.

    kind, along tp:
        "sharded": each rank holds one of tp equal pieces along `dim`, and the whole gradient of that piece.
        "replicated": each rank holds all of it, and every rank's gradient is already the whole one.
        "partial": each rank holds all of it, and every rank's gradient is only its share: the shares add up.
    dim: the dimension that is cut, for "sharded", else None.
    tied: True where the first and the last stage each hold it (and are not one stage): each has the gradient of its
        own use, and their sum is the gradient.
    shape: that of the whole parameter.

    Along dp every parameter is replicated and its gradient is that of the replica's own part of the batch.

    >>> Placement("sharded", (8, 4), dim=0).local_shape(tp=2)
    (4, 4)
    """

    kind: str
    shape: tuple[int, ...]
    dim: int | None = None
    tied: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS or (self.kind == "sharded") != (self.dim is not None):
            raise ValueError(f"kind {self.kind!r} with dim {self.dim}: kind is one of {KINDS}; only sharded has a dim")

    def local_shape(self, tp: int) -> tuple[int, ...]:
        """The shape that one of `tp` ranks holds."""
        return tuple(n // tp if d == self.dim else n for d, n in enumerate(self.shape))


def shard_of(full: torch.Tensor, dim: int | None, index: int, count: int) -> torch.Tensor:
    """Piece `index` of `count` equal pieces of `full` along `dim`, a view; all of it where `dim` is None.

    ValueError where the pieces would be unequal.

    >>> shard_of(torch.arange(6), 0, 1, 3).tolist()
    [2, 3]
    """
    if dim is None:
        return full
    if full.shape[dim] % count:
        raise ValueError(f"a tensor of shape {tuple(full.shape)} does not divide into {count} along dim {dim}")
    return full.chunk(count, dim)[index]
