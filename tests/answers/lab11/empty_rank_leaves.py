# kind: wrong
# about: A rank without tokens returns at once, and the others wait for it.
# loses: moe_routing, moe_values, moe_gradients, moe_router_gradient, moe_dropped, moe_traffic, moe_work,
#  two_steps
# says: "moe_values": "rank 1"

# %% edit="moe_layer"
# replace
    ids, weights = route(x @ router.t(), k, renormalise)
# by
    if len(x) == 0:
        return x
    ids, weights = route(x @ router.t(), k, renormalise)
