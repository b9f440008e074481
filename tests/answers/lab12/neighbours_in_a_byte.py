# kind: wrong
# about: Both levels of a byte taken for neighbours.
# loses: decode_blocks, file_weights, served_file
# says: "decode_blocks": "taken for neighbours"

# %% edit="decode"
# replace
    return d * torch.cat([low, high], 1).float() + m
# by
    return d * torch.stack([low, high], -1).flatten(1).float() + m
