"""The memory behind a paged cache: blocks of slots for keys and values. Who owns them is not its business."""

from __future__ import annotations

import torch

from utils.models import DecoderConfig


class KVBlocks:
    """Keys and values of all layers, in blocks: `k` and `v` are [layers, num_blocks, block_size, kv_heads, head_dim].

    One block number means the same place in every layer. `fill`: what the memory holds at first.

    >>> cache = KVBlocks(DecoderConfig(layers=2, kv_heads=2, hidden=64, heads=4), num_blocks=3, block_size=4)
    >>> cache.k.shape, cache.nbytes
    (torch.Size([2, 3, 4, 2, 16]), 6144)
    """

    def __init__(
        self,
        config: DecoderConfig,
        num_blocks: int,
        block_size: int,
        *,
        fill: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        shape = (config.layers, num_blocks, block_size, config.kv_heads, config.head_dim)
        self.k, self.v = (torch.full(shape, fill, dtype=dtype) for _ in "kv")

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values together: 2 x layers x slots x kv_heads x head_dim x bytes of an element."""
        return self.k.nbytes + self.v.nbytes
