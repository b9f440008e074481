# kind: wrong
# about: Lets -1 index the experts, so dropped choices go through the last one (E15).
# loses: moe_dropped, two_steps
# says: "moe_dropped": "went through the last expert"

# %% edit="moe_layer"
# replace
        ids = drop_over_capacity(ids, len(router), capacity, group)
# by
        ids = drop_over_capacity(ids, len(router), capacity, group) % len(router)
