# kind: wrong
# about: exp(-inf - (-inf)) in the backward pass of a row that sees nothing (F01).
# loses: blockwise_gradients, ring_gradients, all_to_all_step
# says: "blockwise_gradients": "a row that sees nothing gives no gradient"

# %% edit="blockwise_backward"
# replace
    lse = lse.masked_fill(lse == -math.inf, 0)[..., None]  # such a row sees nothing: its exponentials are 0
# by
    lse = lse[..., None]
