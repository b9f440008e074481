# kind: wrong
# about: Decodes Q4_0: d * (q - 8).
# loses: decode_blocks, file_weights, served_file
# says: "decode_blocks": "which is Q4_0"

# %% edit="decode"
# replace
    return d * torch.cat([low, high], 1).float() + m
# by
    return d * (torch.cat([low, high], 1).float() - 8)
