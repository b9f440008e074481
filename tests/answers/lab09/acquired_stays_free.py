# kind: wrong
# about: A free block that is acquired stays in the free list.
# loses: blocks_counted, blocks_verified, engine_outputs, engine_blocks
# says: "blocks_counted": "A shared block is free only when its last user has gone"
# edits: helper_methods

# %% edit="block_manager"
# replace
            if self.ref_count[block] == 0:
                self.free.remove(block)
# by
