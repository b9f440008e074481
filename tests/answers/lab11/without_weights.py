# kind: wrong
# about: Adds the experts' results up without their weights.
# loses: moe_routing, moe_values, moe_gradients, moe_router_gradient, moe_dropped, two_steps
# says: "moe_values": "without their weights"
# says: "moe_routing": "right experts"

# %% edit="moe_layer"
# replace
    return torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
# by
    return torch.zeros_like(x).index_add(0, tokens, results)
