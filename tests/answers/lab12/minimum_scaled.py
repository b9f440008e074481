# kind: wrong
# about: d * (q + m).
# loses: decode_blocks, file_weights, served_file
# says: "decode_blocks": "m is not scaled"

# %% edit="decode"
# replace
    return d * torch.cat([low, high], 1).float() + m
# by
    return d * (torch.cat([low, high], 1).float() + m)
