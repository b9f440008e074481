# kind: wrong
# about: The whole prompt is registered at admission, while only its first chunk is computed.
# loses: engine_outputs
# says: "engine_outputs": "alone it gets"
# edits: helper_methods

# %% edit="scheduler"
# replace
        request.computed = len(matched) * self.blocks.block_size
# by
        request.computed = len(matched) * self.blocks.block_size
        self.blocks.register(tokens, request.blocks)
