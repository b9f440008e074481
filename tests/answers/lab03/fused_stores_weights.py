# kind: wrong
# about: The fused attention as the written-out one.
# loses: activation_variants
# says: "activation_variants": "the fused attention stores no S x S weights"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    bsh, bsf = batch * seq * sizes.hidden, batch * seq * sizes.ffn
    scores = batch * sizes.heads * seq * seq
    total = 8 * bsh * itemsize
    total += (4 * bsf if sizes.gated else 2 * bsf) * itemsize
    if True:
        total += scores * itemsize + seq * seq
        if sizes.dropout:
            total += 2 * scores * itemsize
    if sizes.dropout:
        total += 2 * bsh * itemsize
    return total
