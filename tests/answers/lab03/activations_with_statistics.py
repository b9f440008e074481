# kind: right
# about: Counts the small terms, too: means and scales of the norms, one number a token and head of the fused attention.

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
    return total + 4 * batch * seq * 4 + (4 * batch * sizes.heads * seq if sizes.fused_attention else 0)
