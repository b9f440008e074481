# kind: wrong
# about: The two probabilities of 64 are used as they are, whatever was asked for (E01).
# loses: route_values, route_gradients, moe_routing, moe_values, moe_gradients, moe_router_gradient,
#  moe_dropped, two_steps
# says: "route_values": "they were not divided by their sum"
# says: "moe_router_gradient": "that of the other convention"
# says: "moe_values": "of the other convention (renormalise)"

# %% edit="route"
# replace
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
# by
