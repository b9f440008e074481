# kind: wrong
# about: Rows of queries and keys stay as the file has them.
# loses: rope_order, file_weights, served_file
# says: "rope_order": "the rows were not moved"
# says: "file_weights": "in the file's order"

# %% edit="read_weights"
# replace
    pairs = weight.unflatten(0, (heads, -1, 2))  # [heads, D/2, 2, H]
    return pairs.transpose(1, 2).flatten(0, 2).clone()
# by
    return weight.clone()
