# kind: wrong
# about: The free list is a stack: what was released last is overwritten first.
# loses: blocks_evicted, engine_work
# says: "engine_work": "Nothing was reused"
# edits: helper_methods

# %% edit="block_manager"
# replace
        blocks, self.free = self.free[:count], self.free[count:]
# by
        blocks = [self.free.pop() for _ in range(count)]
