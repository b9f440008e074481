# kind: wrong
# about: The first split that fits.
# loses: best_split_legal, best_split_cheapest
# says: "best_split_cheapest": "there is a legal split that takes"

# %% edit="best_split"
# replace
    return min(legal, key=seconds, default=None)
# by
    return legal[0] if legal else None
