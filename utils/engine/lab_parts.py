"""What stands in where a student of the last lab leaves a cell empty: the engine's parts, called as in labs 06 and 09.

`chosen(my_layers, my_cache, my_scheduler)` asks the student's cells, and puts the engine's own in the place of what
they do not give. The names are those of `utils.engine.Parts`. Left out: parts for a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from utils.engine.attention import PagedAttention, Row
from utils.engine.blocks import BlockManager
from utils.engine.parallel import column_linear, row_linear, vocab_embedding
from utils.engine.scheduler import Scheduler
from utils.serving import KVBlocks


def paged_attention(
    cache: KVBlocks,
    rows: Sequence[Row],
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Attention of several requests side by side, q [1,N,T,D], k and v [1,K,T,D], through their block tables.

    rows: (block table, position of the first token, tokens) of each request; ValueError where they do not add up to T.
    """
    return PagedAttention(cache, rows)(layer, q, k, v, positions)


OWN: dict[str, Callable[..., Any]] = {
    "column_linear": column_linear, "row_linear": row_linear, "vocab_embedding": vocab_embedding,
    "paged_attention": paged_attention, "block_manager": BlockManager, "scheduler": Scheduler,
}  # fmt: skip


def given(*cells: Callable[[], Mapping[str, Any]]) -> dict[str, Callable[..., Any]]:
    """The parts that the cells give; a cell that raises NotImplementedError gives none.

    Raises ValueError where a cell gives a part that has no place.

    >>> given(lambda: {"scheduler": None})
    {}
    """
    parts: dict[str, Callable[..., Any]] = {}
    for cell in cells:
        try:
            found = dict(cell() or {})
        except NotImplementedError:
            continue
        unknown = sorted(set(found) - set(OWN))
        if unknown:
            raise ValueError(f"there is no part {unknown[0]!r}; parts are {', '.join(OWN)}")
        parts |= {name: part for name, part in found.items() if part is not None}
    return parts


def chosen(*cells: Callable[[], Mapping[str, Any]]) -> dict[str, Callable[..., Any]]:
    """All parts: those that the cells give, and the engine's own for the others.

    >>> chosen(lambda: {})["scheduler"] is Scheduler
    True
    """
    return OWN | given(*cells)
