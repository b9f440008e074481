# kind: wrong
# about: Levels of Q8_0 read as 0 to 255.
# loses: decode_blocks, file_weights, served_file
# says: "decode_blocks": "they are int8"

# %% edit="decode"
# replace
    return d * blocks[:, 2:].contiguous().view(torch.int8).float()
# by
    return d * blocks[:, 2:].float()
