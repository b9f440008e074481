# kind: wrong
# about: No LayerNorms.
# loses: ledger_bytes
# says: "ledger_bytes": "the LayerNorms are missing"

# %% solution="ledger"
def ledger(sizes):
    h, f, kv = sizes.hidden, sizes.ffn, sizes.kv_heads * sizes.hidden // sizes.heads
    bias = 1 if sizes.bias else 0
    attention = 2 * h * h + 2 * h * kv + bias * (2 * h + 2 * kv)
    ffn = (3 if sizes.gated else 2) * h * f + bias * ((2 if sizes.gated else 1) * f + h)
    n = sizes.layers * (attention + ffn) + sizes.max_len * h
    n += sizes.vocab_size * h if sizes.tied else 2 * sizes.vocab_size * h
    return {"weights": 2 * n, "gradients": 2 * n, "master": 4 * n, "exp_avg": 4 * n, "exp_avg_sq": 4 * n}
