# kind: wrong
# about: A row whose first tile is masked is NaN for good (F02).
# loses: blockwise_masks, blockwise_gradients, blockwise_memory, ring_values, ring_gradients, ring_memory,
#  all_to_all_step
# says: "blockwise_masks": "NaN where a row's first tile is masked"
# says: "ring_values": "NaN"

# %% edit="blockwise_forward"
# replace
            safe = top.masked_fill(top == -math.inf, 0)
# by
            safe = top
