# kind: wrong
# about: Counts a multiplication and its addition as one.
# loses: flops_layer
# says: "flops_layer": "half; a multiply-add is two operations, and attention has two products"

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    b, s, h, f = batch, seq, sizes.hidden, sizes.ffn
    kv = sizes.kv_heads * h // sizes.heads
    return {
        "projections": 2 * b * s * h * h + 2 * b * s * h * kv,
        "attention": 2 * b * s * s * h,
        "ffn": (3 if sizes.gated else 2) * b * s * h * f,
    }
