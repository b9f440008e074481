"""The memory of keys and values in blocks, and who owns them (Kwon et al. 2023, arXiv 2309.06180, section 4).

A block is found again by its own tokens and everything before them. Left out: swapping to another memory, copies of
blocks that are half full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

from utils.models import DecoderConfig
from utils.serving import KVBlocks


class PagedCache(KVBlocks):
    """`KVBlocks` whose keys and values of a token lie side by side: `both` is [layers, blocks, size, 2K, D].

    `k` and `v` are views of it. What a batch reads of a layer is then one gather of whole blocks.

    >>> cache = PagedCache(DecoderConfig(layers=2, kv_heads=2, hidden=64, heads=4), num_blocks=3, block_size=4)
    >>> cache.k.shape, cache.nbytes
    (torch.Size([2, 3, 4, 2, 16]), 6144)
    """

    def __init__(self, config: DecoderConfig, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.both = torch.zeros(config.layers, num_blocks, block_size, 2 * config.kv_heads, config.head_dim)
        self.k, self.v = self.both.split(config.kv_heads, dim=3)


class BlockManager:
    """Hands out blocks, counts who uses each, and finds full ones again by what they hold.

    `ref_count` by block; `free`: blocks that nobody uses, in the order in which they will be handed out. A free block
    keeps what it holds and can be found until then.

    >>> manager = BlockManager(num_blocks=4, block_size=2)
    >>> table = manager.allocate(2)
    >>> manager.register([5, 6, 7, 8], table)
    >>> table, manager.match([5, 6, 7, 8, 9]), manager.match([5, 6, 7, 8]), manager.match([7, 8, 9])
    ([0, 1], [0, 1], [0], [])
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.ref_count = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        # A key is what the block before holds (the number it was given there) and the block's own tokens. Numbers are
        # never given twice, so that nothing is found behind a block that has been handed out anew.
        self._found: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}  # key -> block, its number
        self._key_of: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._given = 0

    @property
    def free(self) -> list[int]:
        """The blocks that nobody uses, the next to be handed out first."""
        return list(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """`count` free blocks, with one reference each; None, and nothing happens, where there are fewer."""
        if count > len(self._free):
            return None
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self.ref_count[block] = 1
            if block in self._key_of:
                del self._found[self._key_of.pop(block)]
        return blocks

    def acquire(self, blocks: Sequence[int]) -> None:
        """One more reference for each block."""
        for block in blocks:
            self._free.pop(block, None)
            self.ref_count[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One reference less for each, the last first, so that a beginning outlives what follows it."""
        for block in reversed(blocks):
            self.ref_count[block] -= 1
            if not self.ref_count[block]:
                self._free[block] = None

    def register(self, tokens: Sequence[int], blocks: Sequence[int]) -> None:
        """The keys and values of `tokens` lie in `blocks`: every full block can be found from now on."""
        before, size = 0, self.block_size
        for block, start in zip(blocks, range(0, len(tokens) - size + 1, size), strict=False):
            key = before, tuple(tokens[start : start + size])
            if key not in self._found:
                if block in self._key_of:
                    return  # it is known by another beginning, which was found in other blocks
                self._given += 1
                self._found[key], self._key_of[block] = (block, self._given), key
            before = self._found[key][1]

    def match(self, tokens: Sequence[int]) -> list[int]:
        """The blocks that hold the longest known beginning; at least one token is left over."""
        before, size, blocks = 0, self.block_size, []
        for start in range(0, len(tokens) - size, size):
            found = self._found.get((before, tuple(tokens[start : start + size])))
            if found is None:
                break
            blocks.append(found[0])
            before = found[1]
        return blocks
