# kind: wrong
# about: A released block is forgotten at once: nothing is reused later.
# loses: blocks_evicted, engine_work
# says: "blocks_evicted": "free blocks keep what they hold"
# says: "engine_work": "Nothing was reused"
# edits: helper_methods

# %% edit="block_manager"
# replace
                self.free.append(block)
# by
                self.free.append(block)
                if block in self.holds:
                    del self.found[self.holds.pop(block)[0]]
