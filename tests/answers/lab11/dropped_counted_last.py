# kind: wrong
# about: A dropped choice's -1 is taken for the last expert (E15).
# loses: counts_values, moe_dropped, two_steps
# says: "counts_values": "dropped choices (-1) were counted for the last expert"

# %% edit="count_rows"
# replace
    kept = ids[ids >= 0]
# by
    kept = ids.flatten() % num_experts
