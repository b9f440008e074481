# kind: wrong
# about: The hash sees the low byte of a token only, and nothing is compared: 65 and 321 collide (K15).
# loses: blocks_verified
# says: "blocks_verified": "Two keys collided, and the tokens were not compared"

# %% edit="block_manager"
# replace
    def register(self, tokens: list[int], blocks: list[int]) -> None:
        key, size = 0, self.block_size
        for block, end in zip(blocks, range(size, len(tokens) + 1, size)):
            key = self.hash_fn((key, tuple(tokens[end - size : end])))
# by
    def _keyed_prefixes(self, tokens: list[int], count: int):
        key = 0
        for end in range(self.block_size, count * self.block_size + 1, self.block_size):
            key = self.hash_fn((key, bytes(token & 0xFF for token in tokens[end - self.block_size : end])))
            yield key, tuple(tokens[:end])

    def register(self, tokens: list[int], blocks: list[int]) -> None:
        for block, (key, prefix) in zip(blocks, self._keyed_prefixes(tokens, len(tokens) // self.block_size)):
# replace
                self.holds[block] = key, tuple(tokens[:end])
# by
                self.holds[block] = key, prefix
# replace
        key, size, blocks = 0, self.block_size, []
        for end in range(size, len(tokens), size):  # ends before the last token
            key = self.hash_fn((key, tuple(tokens[end - size : end])))
            block = self.found.get(key)
            if block is None or self.holds[block][1] != tuple(tokens[:end]):
# by
        blocks = []
        for key, prefix in self._keyed_prefixes(tokens, (len(tokens) - 1) // self.block_size):
            block = self.found.get(key)
            if block is None:
