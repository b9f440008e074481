# kind: right
# about: Solved on paper, for 2 or 3 matrices.

# %% solution="crossover"
def crossover(sizes):
    kv = sizes.kv_heads * sizes.hidden / sizes.heads
    return sizes.hidden + kv + (1.5 if sizes.gated else 1.0) * sizes.ffn

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    b, s, h, f = batch, seq, sizes.hidden, sizes.ffn
    kv = sizes.kv_heads * h // sizes.heads
    return {
        "projections": 4 * b * s * h * h + 4 * b * s * h * kv,
        "attention": 4 * b * s * s * h,
        "ffn": (6 if sizes.gated else 4) * b * s * h * f,
    }
