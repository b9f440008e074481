# kind: wrong
# about: Only q times k is counted, not weights times v.
# loses: flops_layer, flops_crossover
# says: "flops_layer": "half; a multiply-add is two operations, and attention has two products"
# says: "flops_crossover": "only one of attention's two products"

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    b, s, h, f = batch, seq, sizes.hidden, sizes.ffn
    kv = sizes.kv_heads * h // sizes.heads
    return {
        "projections": 4 * b * s * h * h + 4 * b * s * h * kv,
        "attention": 2 * b * s * s * h,
        "ffn": (6 if sizes.gated else 4) * b * s * h * f,
    }
