# kind: wrong
# about: Tiles in which nothing is visible are computed, and then masked.
# loses: blockwise_work, ring_balance
# says: "blockwise_work": "tiles in which nothing is visible were computed too"
# says: "ring_balance": "in which nothing is visible were computed too"

# %% edit="blockwise_forward"
# replace
            if not seen.any():
                continue
# by
