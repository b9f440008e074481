# kind: wrong
# about: Builds a block and measures it.
# loses: activation_plain, activation_variants
# says: "activation_plain": "activation_bytes ran code of utils/memory/saved.py; write it yourself, without"
# says: "activation_variants": "activation_bytes ran code of utils/memory/saved.py; write it yourself, without"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    dtype = {2: bfloat16, 4: float32}[itemsize]
    block = Block(TransformerConfig(**vars(sizes))).to(dtype)
    return saved_bytes(block, torch.zeros(batch, seq, sizes.hidden, dtype=dtype, requires_grad=True))
