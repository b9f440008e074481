# kind: wrong
# about: The first user that goes frees the block.
# loses: blocks_counted, engine_outputs, engine_blocks
# says: "blocks_counted": "is in the free list"
# edits: helper_methods

# %% edit="block_manager"
# replace
            self.ref_count[block] -= 1
            if self.ref_count[block] == 0:
                self.free.append(block)
# by
            self.ref_count[block] = 0
            self.free.append(block)
