"""A block manager that shares nothing: what a scheduler is tried with."""

from __future__ import annotations

from collections.abc import Sequence


class PlainBlocks:
    """Hands out blocks and takes them back; finds no prefix, so every block has one owner.

    `free` lists the blocks that can be handed out, `ref_count` is 1 for all others.

    >>> blocks = PlainBlocks(num_blocks=3, block_size=4)
    >>> blocks.allocate(2), blocks.allocate(2), blocks.free
    ([0, 1], None, [2])
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free = list(range(num_blocks))
        self.ref_count = [0] * num_blocks

    def match(self, tokens: Sequence[int]) -> list[int]:
        """No prefix is ever found."""
        return []

    def acquire(self, blocks: Sequence[int]) -> None:
        """One more reference for each block."""
        for block in blocks:
            if not self.ref_count[block]:
                self.free.remove(block)
            self.ref_count[block] += 1

    def allocate(self, count: int) -> list[int] | None:
        """`count` free blocks with one reference each; None, and nothing happens, where there are fewer."""
        if count > len(self.free):
            return None
        blocks, self.free = self.free[:count], self.free[count:]
        for block in blocks:
            self.ref_count[block] = 1
        return blocks

    def register(self, tokens: Sequence[int], blocks: Sequence[int]) -> None:
        """Nothing: what is not found needs no index."""

    def release(self, blocks: Sequence[int]) -> None:
        """One reference less for each block; those without any are free. ValueError: it has none to give back."""
        for block in reversed(blocks):
            if not self.ref_count[block]:
                raise ValueError(f"block {block} is released, and nobody holds it: released twice?")
            self.ref_count[block] -= 1
            if not self.ref_count[block]:
                self.free.append(block)
