# kind: wrong
# about: The gate's product is forgotten.
# loses: flops_layer, flops_crossover
# says: "flops_layer": "a gated feed-forward"
# says: "flops_crossover": "a gated feed-forward"

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    b, s, h, f = batch, seq, sizes.hidden, sizes.ffn
    kv = sizes.kv_heads * h // sizes.heads
    return {
        "projections": 4 * b * s * h * h + 4 * b * s * h * kv,
        "attention": 4 * b * s * s * h,
        "ffn": 4 * b * s * h * f,
    }
