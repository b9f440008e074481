"""Attention of one step's tokens, each to its own request, through block tables (Kwon et al. 2023, section 4.1).

The places of a step are worked out once and used in every layer. Requests that decode attend together: their blocks
are gathered side by side and the shorter ones masked. Each prompt attends by itself.

Shapes: T tokens of the step side by side, n query heads, k KV heads, D head_dim; R requests that decode, L the longest
table in slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from utils.serving import KVBlocks

Row = tuple[Sequence[int], int, int]  # a request's block table, its first position in this step, how many tokens


class PagedAttention:
    """`attention(layer, q, k, v, positions)` of one step, over a paged cache; q [1, n, T, D], k, v [1, k, T, D].

    rows: one (block table, start, count) a request, in the order in which their tokens lie along T. product: None, or
    `gqa_attention(q, k, v, mask)` in place of torch's attention. ValueError where the counts do not add up to T.

    >>> from utils.models import DecoderConfig
    >>> cache = KVBlocks(DecoderConfig(layers=1, hidden=8, heads=2, kv_heads=1), num_blocks=2, block_size=4)
    >>> q, k, v = torch.ones(1, 2, 3, 4), torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4)
    >>> PagedAttention(cache, [([1], 0, 3)])(0, q, k, v, torch.arange(3)[None]).shape
    torch.Size([1, 2, 3, 4])
    """

    def __init__(
        self, cache: KVBlocks, rows: Sequence[Row], product: Callable[..., torch.Tensor] | None = None
    ) -> None:
        self.cache, self.product, size = cache, product, cache.block_size
        self.total = sum(count for _, _, count in rows)
        self.write = torch.cat([_slots(table, start, count, size) for table, start, count in rows])
        begins = [0, *torch.tensor([count for *_, count in rows]).cumsum(0).tolist()]
        single = [number for number, (_, _, count) in enumerate(rows) if count == 1]
        self.single = torch.tensor([begins[number] for number in single])
        self.prompts = [
            (begins[number], torch.tensor(table[: -(-(start + count) // size)]), start, count, self._mask(start, count))
            for number, (table, start, count) in enumerate(rows) if count > 1
        ]  # fmt: skip
        if single:
            self._prepare([rows[number][:2] for number in single])

    def _mask(self, start: int, count: int) -> torch.Tensor | None:
        """Which keys the tokens of a prompt's part see, [count, start + count]; None where is_causal says it."""
        if start == 0 and self.product is None:
            return None
        return torch.ones(count, start + count, dtype=torch.bool).tril(start)

    def _prepare(self, rows: list[tuple[Sequence[int], int]]) -> None:
        """Tables of those that decode, filled up to one length, and the mask of what each may see."""
        size = self.cache.block_size
        lengths = torch.tensor([start + 1 for _, start in rows])
        blocks = -(-int(lengths.max()) // size)
        self.longest = int(lengths.max())
        tables = [[*table[:blocks], *[table[0]] * (blocks - len(table))] for table, _ in rows]
        self.tables = torch.tensor(tables).flatten()
        self.seen = torch.arange(self.longest) < lengths[:, None]  # [R, L]
        self.bias = None
        if int(lengths.min()) < self.longest:
            self.bias = torch.zeros(self.seen.shape).masked_fill_(~self.seen, -torch.inf)[:, None, None]

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        if q.shape[2] != self.total:
            raise ValueError(f"rows stand for {self.total} tokens, and q has {q.shape[2]}")
        for kept, new in ((self.cache.k, k), (self.cache.v, v)):
            kept[layer].flatten(0, 1).index_copy_(0, self.write, new[0].transpose(0, 1))
        if len(self.single) == self.total:
            return self._decode(layer, q[0].transpose(0, 1)).transpose(0, 1)[None]
        y = torch.empty_like(q)
        if len(self.single):
            y[0, :, self.single] = self._decode(layer, q[0, :, self.single].transpose(0, 1)).transpose(0, 1)
        for begin, table, start, count, mask in self.prompts:
            own = slice(begin, begin + count)
            y[:, :, own] = self._prompt(q[:, :, own], *self._read(layer, table, 1, start + count), mask)
        return y

    def _read(self, layer: int, blocks: torch.Tensor, rows: int, length: int) -> list[torch.Tensor]:
        """Keys and values [rows, k, length, D] of blocks that stand row by row: views of one gather."""
        together = getattr(self.cache, "both", None)
        stores = [together] if together is not None else [self.cache.k, self.cache.v]
        read = [store[layer].index_select(0, blocks).unflatten(0, (rows, -1)).flatten(1, 2) for store in stores]
        halves = read[0].chunk(2, 2) if together is not None else read
        return [half[:, :length].transpose(1, 2) for half in halves]

    def _decode(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """Queries [R, n, D], one a request, to [R, n, D]."""
        keys, values = self._read(layer, self.tables, len(q), self.longest)
        if self.product is not None:
            return self.product(q[:, :, None], keys, values, self.seen[:, None])[:, :, 0]
        grouped = q.unflatten(1, (keys.shape[1], -1))  # the heads of a group are queries of their KV head
        return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=self.bias).flatten(1, 2)

    def _prompt(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Queries [1, n, count, D] of a prompt's part, over all keys and values up to its end."""
        if self.product is not None:
            assert mask is not None
            return self.product(q, keys, values, mask[None])
        return F.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )


def _slots(table: Sequence[int], start: int, count: int, size: int) -> torch.Tensor:
    places = torch.arange(start, start + count)
    return torch.tensor(table)[places // size] * size + places % size
