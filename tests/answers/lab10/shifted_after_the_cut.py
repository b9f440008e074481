# kind: wrong
# about: Labels are shifted within a rank's piece (F10).
# loses: shard_layout
# says: "shard_layout": "shifted after the cut"

# %% edit="shard_tokens"
# replace
    labels = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -100)], 1)
    return {"inputs": tokens[:, positions], "labels": labels[:, positions], "positions": positions}
# by
    inputs = tokens[:, positions]
    labels = torch.cat([inputs[:, 1:], torch.full_like(inputs[:, :1], -100)], 1)
    return {"inputs": inputs, "labels": labels, "positions": positions}
