# kind: wrong
# about: Takes the results for the tokens in their order; they are in the order of the experts.
# loses: moe_routing, moe_values, moe_gradients, moe_router_gradient, moe_dropped, two_steps
# says: "moe_values": "left in the order of the experts"

# %% edit="moe_layer"
# replace
    return torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
# by
    if capacity is not None:
        results = torch.cat([results, results.new_zeros(ids.numel() - len(results), x.shape[1])])
    return (results.view(len(x), k, x.shape[1]) * weights[..., None]).sum(1)
