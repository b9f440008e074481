# kind: wrong
# about: Keys and values of K heads only.
# loses: activation_variants
# says: "activation_variants": "keys and values are repeated to all heads before the product"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    bsh, bsf = batch * seq * sizes.hidden, batch * seq * sizes.ffn
    scores = batch * sizes.heads * seq * seq
    total = (6 * bsh + 2 * batch * seq * sizes.kv_heads * sizes.hidden // sizes.heads) * itemsize
    total += (4 * bsf if sizes.gated else 2 * bsf) * itemsize
    if not sizes.fused_attention:
        total += scores * itemsize + seq * seq
        if sizes.dropout:
            total += 2 * scores * itemsize
    if sizes.dropout:
        total += 2 * bsh * itemsize
    return total
