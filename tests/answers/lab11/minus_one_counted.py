# kind: wrong
# about: bincount over -1, which it refuses (E15).
# loses: counts_values, moe_dropped, two_steps
# says: "counts_values": "bincount"

# %% edit="count_rows"
# replace
    kept = ids[ids >= 0]
# by
    kept = ids.flatten()
