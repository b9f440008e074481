# kind: wrong
# about: The formula worked out in float16.
# loses: decode_blocks, file_weights
# says: "decode_blocks": "NaN or infinity"

# %% edit="decode"
# replace
    d, m = blocks[:, :4].contiguous().view(torch.float16).float().split(1, 1)
# by
    d, m = blocks[:, :4].contiguous().view(torch.float16).split(1, 1)
# replace
    return d * torch.cat([low, high], 1).float() + m
# by
    return (d * torch.cat([low, high], 1).half() + m).float()
