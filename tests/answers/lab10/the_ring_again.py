# kind: wrong
# about: Calls ring_attention: right values, and more bytes.
# loses: all_to_all_step
# says: "all_to_all_step": "(p-1)/p of four tensors of q's size"

# %% solution="all_to_all_attention"
def all_to_all_attention(q, k, v, seq, tile, **rule):
    return ring_attention(q, k, v, seq, tile, **rule)
