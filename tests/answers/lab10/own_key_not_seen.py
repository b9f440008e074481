# kind: wrong
# about: Causal means before: a query does not see its own key.
# loses: blockwise_values, blockwise_masks, blockwise_precision, blockwise_gradients, blockwise_memory,
#  blockwise_work, ring_values, ring_gradients, ring_traffic, ring_balance, ring_memory, all_to_all_step
# says: "blockwise_values": "a query must see its own key too"

# %% edit="blockwise_forward"
# replace
            seen = visible(row_pos, key_pos, **rule)
# by
            seen = visible(row_pos - 1, key_pos, **rule)
