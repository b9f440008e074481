# kind: wrong
# about: No masks.
# loses: activation_variants
# says: "activation_variants": "the masks of dropout, and what they leave, are missing"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    bsh, bsf = batch * seq * sizes.hidden, batch * seq * sizes.ffn
    scores = batch * sizes.heads * seq * seq
    total = 8 * bsh * itemsize
    total += (4 * bsf if sizes.gated else 2 * bsf) * itemsize
    if not sizes.fused_attention:
        total += scores * itemsize + seq * seq
        if False:
            total += 2 * scores * itemsize
    if False:
        total += 2 * bsh * itemsize
    return total
