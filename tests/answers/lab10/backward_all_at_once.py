# kind: wrong
# about: The backward pass makes the S x S matrix after all.
# loses: blockwise_memory, blockwise_work, ring_balance, ring_memory
# says: "blockwise_memory": "MiB at the peak of the backward pass"
# says: "blockwise_work": "backward"

# %% edit="blockwise_backward"
# replace
    scale = 1 / math.sqrt(q.shape[-1])
# by
    scale, tile = 1 / math.sqrt(q.shape[-1]), max(q.shape[2], k.shape[2])
