# kind: wrong
# about: Linear in S only.
# loses: activation_plain, activation_variants
# says: "activation_plain": "the attention weights grow with S squared"
# says: "activation_variants": "the attention weights grow with S squared"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    bsh, bsf = batch * seq * sizes.hidden, batch * seq * sizes.ffn
    scores = batch * sizes.heads * seq * seq
    total = 8 * bsh * itemsize
    total += (4 * bsf if sizes.gated else 2 * bsf) * itemsize
    if not sizes.fused_attention:
        total += 0
        if sizes.dropout:
            total += 2 * scores * itemsize
    if sizes.dropout:
        total += 2 * bsh * itemsize
    return total
