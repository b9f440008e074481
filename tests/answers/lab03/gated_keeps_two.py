# kind: wrong
# about: The gated feed-forward as the plain one.
# loses: activation_variants
# says: "activation_variants": "a gated feed-forward"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    bsh, bsf = batch * seq * sizes.hidden, batch * seq * sizes.ffn
    scores = batch * sizes.heads * seq * seq
    total = 8 * bsh * itemsize
    total += 2 * bsf * itemsize
    if not sizes.fused_attention:
        total += scores * itemsize + seq * seq
        if sizes.dropout:
            total += 2 * scores * itemsize
    if sizes.dropout:
        total += 2 * bsh * itemsize
    return total
