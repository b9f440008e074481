# kind: right
# about: No hashes: whole prefixes are the keys; a deque of free blocks, counts in a dictionary; a newer copy takes over a known prefix.

# %% solution="block_manager"
from collections import Counter, deque


class BlockManager:
    def __init__(self, num_blocks, block_size, hash_fn=hash):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free, self.ref_count = deque(range(num_blocks)), Counter()
        self.block_of, self.prefix_of = {}, {}

    def _forget(self, block):
        prefix = self.prefix_of.pop(block, None)
        if prefix is not None and self.block_of.get(prefix) == block:
            del self.block_of[prefix]

    def allocate(self, count):
        if len(self.free) < count:
            return None
        taken = [self.free.popleft() for _ in range(count)]
        for block in taken:
            self._forget(block)
            self.ref_count[block] += 1
        return taken

    def acquire(self, blocks):
        for block in blocks:
            if not self.ref_count[block]:
                self.free.remove(block)
            self.ref_count[block] += 1

    def release(self, blocks):
        for block in blocks[::-1]:
            self.ref_count[block] -= 1
            if not self.ref_count[block]:
                self.free.append(block)

    def register(self, tokens, blocks):
        size = self.block_size
        for i in range(len(tokens) // size):
            prefix = tuple(tokens[: (i + 1) * size])
            if prefix not in self.block_of:
                self._forget(blocks[i])
                self.block_of[prefix], self.prefix_of[blocks[i]] = blocks[i], prefix

    def match(self, tokens):
        found, size = [], self.block_size
        while (len(found) + 1) * size < len(tokens):
            block = self.block_of.get(tuple(tokens[: (len(found) + 1) * size]))
            if block is None:
                break
            found.append(block)
        return found
