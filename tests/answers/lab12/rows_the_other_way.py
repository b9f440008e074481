# kind: wrong
# about: From halves to neighbours in place of the reverse.
# loses: rope_order, file_weights, served_file
# says: "rope_order": "from halves to neighbours"

# %% edit="read_weights"
# replace
    pairs = weight.unflatten(0, (heads, -1, 2))  # [heads, D/2, 2, H]
    return pairs.transpose(1, 2).flatten(0, 2).clone()
# by
    halves = weight.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2).clone()
