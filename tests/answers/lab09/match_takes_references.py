# kind: wrong
# about: Looking counts as using.
# loses: blocks_counted, blocks_found, blocks_evicted, engine_outputs, engine_blocks
# says: "blocks_found": "it only looks"
# edits: helper_methods

# %% edit="block_manager"
# replace
            blocks.append(block)
# by
            blocks.append(block)
            self.acquire([block])
