# kind: wrong
# about: Raises where nothing fits; None is asked for.
# loses: best_split_legal
# says: "best_split_legal": "ValueError"

# %% edit="best_split"
# replace
    return min(legal, key=seconds, default=None)
# by
    return min(legal, key=seconds)
