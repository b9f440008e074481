# kind: wrong
# about: Takes the free blocks there are, and only then finds that there are too few.
# loses: blocks_counted, engine_outputs, engine_blocks
# says: "blocks_counted": "it returned None and yet took blocks"
# edits: helper_methods

# %% edit="block_manager"
# replace
        if count > len(self.free):
            return None
        blocks, self.free = self.free[:count], self.free[count:]
        for block in blocks:
# by
        blocks = []
        while len(blocks) < count:
            if not self.free:
                return None
            block = self.free.pop(0)
            blocks.append(block)
