# kind: wrong
# about: Takes memory for the output and writes only the tokens that have an expert (E08).
# loses: moe_dropped
# says: "moe_dropped": "memory that was never written"

# %% edit="moe_layer"
# replace
    return torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
# by
    y = torch.empty_like(x)
    y[tokens.unique()] = 0
    return y.index_add(0, tokens, results * weights.flatten()[slots, None])
