# kind: wrong
# about: Elements in place of bytes.
# loses: activation_plain, activation_variants
# says: "activation_plain": "that looks like elements, not bytes"
# says: "activation_variants": "that looks like elements, not bytes"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    bsh, bsf = batch * seq * sizes.hidden, batch * seq * sizes.ffn
    scores = batch * sizes.heads * seq * seq
    total = 8 * bsh * itemsize
    total += (4 * bsf if sizes.gated else 2 * bsf) * itemsize
    if not sizes.fused_attention:
        total += scores * itemsize + seq * seq
        if sizes.dropout:
            total += 2 * scores * itemsize
    if sizes.dropout:
        total += 2 * bsh * itemsize
    return total / itemsize
