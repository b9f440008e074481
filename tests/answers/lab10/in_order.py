# kind: wrong
# about: Pieces in order: the last rank has most of the work.
# loses: shard_layout, ring_balance
# says: "shard_layout": "these are pieces in order, not zigzag"
# says: "ring_balance": "what the last rank has where the sequence is cut in order"

# %% edit="shard_tokens"
# replace
    chunks = torch.arange(seq).tensor_split(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])
# by
    return torch.arange(seq).tensor_split(ranks)[rank]
