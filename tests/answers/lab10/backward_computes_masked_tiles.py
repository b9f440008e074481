# kind: wrong
# about: The backward pass skips no tile.
# loses: blockwise_work, ring_balance
# says: "blockwise_work": "backward"
# says: "ring_balance": "backward"

# %% edit="blockwise_backward"
# replace
            if not seen.any():
                continue
# by
