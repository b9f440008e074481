# kind: wrong
# about: Without renormalising, hands out the logits as weights (E02).
# loses: route_values, route_gradients, moe_values, moe_gradients, moe_router_gradient
# says: "route_values": "they are the raw logits"

# %% edit="route"
# replace
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
# by
    weights = weights / weights.sum(-1, keepdim=True) if renormalise else logits.gather(-1, ids)
