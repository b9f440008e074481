# kind: wrong
# about: Divides by the sum also where the other convention was asked for.
# loses: route_values, route_gradients, moe_values, moe_gradients, moe_router_gradient
# says: "route_values": "the other convention was asked for"
# says: "route_gradients": "that of the other convention"

# %% edit="route"
# replace
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
# by
    weights = weights / weights.sum(-1, keepdim=True)
