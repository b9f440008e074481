# kind: wrong
# about: High four bits come first.
# loses: decode_blocks, file_weights, served_file
# says: "decode_blocks": "changed places"

# %% edit="decode"
# replace
    return d * torch.cat([low, high], 1).float() + m
# by
    return d * torch.cat([high, low], 1).float() + m
