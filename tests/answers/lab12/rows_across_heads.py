# kind: wrong
# about: All first ones of pairs, then all second ones, over all heads.
# loses: rope_order, file_weights, served_file
# says: "rope_order": "from one head to another"

# %% edit="read_weights"
# replace
    pairs = weight.unflatten(0, (heads, -1, 2))  # [heads, D/2, 2, H]
    return pairs.transpose(1, 2).flatten(0, 2).clone()
# by
    return torch.cat([weight[0::2], weight[1::2]])
