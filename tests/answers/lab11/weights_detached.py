# kind: wrong
# about: Takes the weights out of the graph: the router never learns (E09).
# loses: route_gradients, moe_gradients, moe_router_gradient, moe_dropped, two_steps
# says: "route_gradients": "the weights were cut off from the logits"
# says: "moe_router_gradient": "carry no gradient"
# says: "moe_gradients": "the weights let no gradient through"

# %% edit="route"
# replace
    return ids, weights
# by
    return ids, weights.detach()
