# kind: wrong
# about: Divides the caller's q by sqrt(D).
# loses: blockwise_values, blockwise_precision, blockwise_gradients, ring_values, ring_gradients, ring_traffic,
#  ring_overlap, ring_balance, ring_memory, all_to_all_step
# says: "blockwise_values": "must stay unchanged"

# %% edit="blockwise_forward"
# replace
    outs, lses = [], []
# by
    outs, lses = [], []
    q.div_(math.sqrt(q.shape[-1]))
# replace
        rows = rows.float() / math.sqrt(q.shape[-1])
# by
        rows = rows.float()
