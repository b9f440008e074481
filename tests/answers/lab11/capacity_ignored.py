# kind: wrong
# about: Never drops anything.
# loses: moe_dropped, two_steps
# says: "moe_dropped": "nothing was dropped"

# %% edit="moe_layer"
# replace
    if capacity is not None:
        ids = drop_over_capacity(ids, len(router), capacity, group)
# by
