# kind: wrong
# about: -float('-inf') is +inf: masked keys win (F16).
# loses: blockwise_values, blockwise_masks, blockwise_precision, blockwise_gradients, blockwise_memory, ring_values,
#  ring_gradients, ring_traffic, ring_balance, ring_memory, all_to_all_step
# says: "blockwise_values": "holds NaN or infinity"

# %% edit="blockwise_forward"
# replace
            scores = (rows @ key.float().transpose(-1, -2)).masked_fill(~seen, -math.inf)
# by
            scores = (rows @ key.float().transpose(-1, -2)).masked_fill(~seen, -float('-inf'))
