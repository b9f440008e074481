# kind: wrong
# about: k_proj and v_proj as wide as q_proj.
# loses: flops_layer, flops_crossover
# says: "flops_layer": "k_proj and v_proj are narrower"
# says: "flops_crossover": "k_proj and v_proj are narrower"

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    b, s, h, f = batch, seq, sizes.hidden, sizes.ffn
    kv = h
    return {
        "projections": 4 * b * s * h * h + 4 * b * s * h * kv,
        "attention": 4 * b * s * s * h,
        "ffn": (6 if sizes.gated else 4) * b * s * h * f,
    }
