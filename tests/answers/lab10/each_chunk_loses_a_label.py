# kind: wrong
# about: Labels are shifted within each chunk, so every chunk loses its last one (F10).
# loses: shard_layout
# says: "shard_layout": "each chunk lost its last label"

# %% edit="shard_tokens"
# replace
    labels = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -100)], 1)
# by
    labels = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -100)], 1)
    for chunk in torch.arange(tokens.shape[1]).tensor_split(2 * ranks):
        labels[:, chunk[-1:]] = -100
