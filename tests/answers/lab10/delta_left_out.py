# kind: wrong
# about: dS = P dP: the row's sum of dO * O is not subtracted.
# loses: blockwise_gradients, ring_gradients, all_to_all_step
# says: "blockwise_gradients": "was not subtracted"

# %% edit="blockwise_backward"
# replace
    delta = (dout.float() * out.float()).sum(-1, keepdim=True)
# by
# replace
            dscores = weights * (grad @ value.transpose(-1, -2) - delta[:, :, rows])
# by
            dscores = weights * (grad @ value.transpose(-1, -2))
