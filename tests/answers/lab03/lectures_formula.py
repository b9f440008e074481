# kind: wrong
# about: 8BSH^2 + 4BS^2H + 6BSH^2: the F of the feed-forward is lost, and 4H is taken for gated.
# loses: flops_layer, flops_crossover
# says: "flops_layer": "lost the width F"
# says: "flops_crossover": "lost the width F"

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    b, s, h = batch, seq, sizes.hidden
    return {"projections": 8 * b * s * h * h, "attention": 4 * b * s * s * h, "ffn": 6 * b * s * h * h}
