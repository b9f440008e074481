# kind: wrong
# about: The rest is allocated first, and may be the very blocks that were matched.
# loses: engine_outputs, engine_blocks
# says: "engine_blocks": "is in it twice"
# edits: helper_methods

# %% edit="scheduler"
# replace
        self.blocks.acquire(matched)
# by
# replace
            self.blocks.release(matched)
            return False
# by
            return False
        self.blocks.acquire(matched)
