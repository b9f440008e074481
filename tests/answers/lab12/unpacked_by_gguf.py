# kind: wrong
# about: Lets the gguf library unpack the blocks.
# loses: decode_blocks, file_weights
# says: "decode_blocks": "imported gguf"

# %% solution="decode"
def decode_q4_1(blocks):
    from gguf import GGMLQuantizationType, quants

    return torch.from_numpy(quants.dequantize(blocks.numpy(), GGMLQuantizationType.Q4_1).copy())


def decode_q8_0(blocks):
    from gguf import GGMLQuantizationType, quants

    return torch.from_numpy(quants.dequantize(blocks.numpy(), GGMLQuantizationType.Q8_0).copy())
