# kind: wrong
# about: A token without any expert comes out as it went in: the residual is added twice.
# loses: moe_dropped
# says: "moe_dropped": "zeros are wanted"

# %% edit="moe_layer"
# replace
    return torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
# by
    y = torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
    return torch.where((ids < 0).all(1, keepdim=True), x, y)
