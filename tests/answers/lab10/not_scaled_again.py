# kind: wrong
# about: dQ and dK are not divided by sqrt(D).
# loses: blockwise_gradients, ring_gradients, all_to_all_step
# says: "blockwise_gradients": "not divided by sqrt(D) again"

# %% edit="blockwise_backward"
# replace
            dq[:, :, rows] += dscores @ key * scale
            dk[:, :, cols] += dscores.transpose(-1, -2) @ query
# by
            dq[:, :, rows] += dscores @ key
            dk[:, :, cols] += dscores.transpose(-1, -2) @ query / scale
