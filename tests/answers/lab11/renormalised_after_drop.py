# kind: wrong
# about: Divides the weights that are left by their sum once more.
# loses: moe_dropped, two_steps
# says: "moe_dropped": "renormalised again after dropping"

# %% edit="moe_layer"
# replace
        ids = drop_over_capacity(ids, len(router), capacity, group)
# by
        ids = drop_over_capacity(ids, len(router), capacity, group)
        weights = weights * (ids >= 0)
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-9)
