# kind: wrong
# about: Positions are counted from 0 on each rank (F12).
# loses: shard_layout
# says: "shard_layout": "they begin at 0 on each rank"

# %% edit="shard_tokens"
# replace
    return {"inputs": tokens[:, positions], "labels": labels[:, positions], "positions": positions}
# by
    return {"inputs": tokens[:, positions], "labels": labels[:, positions], "positions": torch.arange(len(positions))}
