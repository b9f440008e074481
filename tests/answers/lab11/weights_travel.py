# kind: right
# about: The weight travels with its row, and the expert's rank multiplies.

# %% edit="moe_layer"
# replace
    rows = exchange(x[tokens], out_sizes, in_sizes, group)
# by
    packed = torch.cat([x[tokens], weights.flatten()[slots, None]], 1)
    rows, share = exchange(packed, out_sizes, in_sizes, group).split([x.shape[1], 1], 1)
# replace
    results = exchange(done[order.argsort()], in_sizes, out_sizes, group)
# by
    results = exchange(done[order.argsort()] * share, in_sizes, out_sizes, group)
# replace
    return torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
# by
    return torch.zeros_like(x).index_add(0, tokens, results)
