# kind: wrong
# about: Positions start at 0 in every pass.
# loses: engine_outputs
# says: "engine_outputs": "alone it gets"

# %% edit="engine"
# replace
            positions += range(start, start + count)
# by
            positions += range(count)
