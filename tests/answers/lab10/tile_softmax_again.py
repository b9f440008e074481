# kind: wrong
# about: The backward pass takes the softmax of a tile, not of the row.
# loses: blockwise_gradients, ring_gradients, all_to_all_step
# says: "blockwise_gradients": "with the lse of the whole row"

# %% edit="blockwise_backward"
# replace
    lse = lse.masked_fill(lse == -math.inf, 0)[..., None]  # such a row sees nothing: its exponentials are 0
# by
# replace
            weights = (scores - lse[:, :, rows]).exp()
# by
            weights = scores.softmax(-1).nan_to_num(0)
