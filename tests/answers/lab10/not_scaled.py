# kind: wrong
# about: Scores are not divided by sqrt(D).
# loses: blockwise_values, blockwise_masks, blockwise_precision, blockwise_gradients, blockwise_memory, ring_values,
#  ring_gradients, ring_traffic, ring_overlap, ring_balance, ring_memory, all_to_all_step
# says: "blockwise_values": "not divided by sqrt(D)"

# %% edit="blockwise_forward"
# replace
        rows = rows.float() / math.sqrt(q.shape[-1])
# by
        rows = rows.float()
