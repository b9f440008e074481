# kind: wrong
# about: The scheduler never asks for a known prefix.
# loses: engine_work
# says: "engine_work": "Nothing was reused"
# edits: helper_methods

# %% edit="scheduler"
# replace
        matched = self.blocks.match(tokens)
# by
        matched = []
