# kind: wrong
# about: A block that is handed out again keeps its entry (K18).
# loses: blocks_verified, blocks_evicted, engine_outputs
# says: "blocks_evicted": "`allocate` must make blocks unfindable"

# %% solution="block_manager"
class BlockManager:
    def __init__(self, num_blocks: int, block_size: int, hash_fn=hash) -> None:
        self.num_blocks, self.block_size, self.hash_fn = num_blocks, block_size, hash_fn
        self.ref_count = [0] * num_blocks
        self.free = list(range(num_blocks))
        self.found = {}  # key -> block
        self.holds = {}  # block -> (key, all tokens up to its end)

    def allocate(self, count: int) -> list[int] | None:
        if count > len(self.free):
            return None
        blocks, self.free = self.free[:count], self.free[count:]
        for block in blocks:
            self.ref_count[block] = 1

        return blocks

    def acquire(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.ref_count[block] == 0:
                self.free.remove(block)
            self.ref_count[block] += 1

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.ref_count[block] -= 1
            if self.ref_count[block] == 0:
                self.free.append(block)

    def _keyed_prefixes(self, tokens: list[int], count: int):
        key = 0
        for end in range(self.block_size, count * self.block_size + 1, self.block_size):
            key = self.hash_fn((key, tuple(tokens[end - self.block_size : end])))
            yield key, tuple(tokens[:end])

    def register(self, tokens: list[int], blocks: list[int]) -> None:
        for block, (key, prefix) in zip(blocks, self._keyed_prefixes(tokens, len(tokens) // self.block_size)):
            if key not in self.found and block not in self.holds:
                self.found[key] = block
                self.holds[block] = key, prefix

    def match(self, tokens: list[int]) -> list[int]:
        blocks = []
        for key, prefix in self._keyed_prefixes(tokens, (len(tokens) - 1) // self.block_size):
            block = self.found.get(key)
            if block is None or self.holds[block][1] != prefix:
                break
            blocks.append(block)
        return blocks
