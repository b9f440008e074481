# kind: wrong
# about: The beginning of a table is released first, and so evicted before what follows it.
# loses: blocks_evicted
# says: "blocks_evicted": "the last block of a table is the first to go"
# edits: helper_methods

# %% edit="block_manager"
# replace
        for block in reversed(blocks):
# by
        for block in blocks:
