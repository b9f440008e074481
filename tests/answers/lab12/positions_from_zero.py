# kind: wrong
# about: Positions begin at 0 in every step.
# loses: served_tokens, served_file
# says: "served_tokens": "in one process it is"

# %% edit="serve"
# replace
            positions += range(start, start + count)
# by
            positions += range(count)
