# kind: wrong
# about: Query head n reads KV head n % K: a tiled order, not groups in a row.
# loses: gqa_values, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "gqa_values": "n % K; those in a row share one"

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    batch, heads, seq, dim = q.shape
    kv_heads = k.shape[1]
    tiled = q.view(batch, heads // kv_heads, kv_heads, seq, dim).transpose(1, 2).flatten(2, 3)
    scores = tiled @ k.mT / math.sqrt(dim)
    scores = scores.view(batch, kv_heads, heads // kv_heads, seq, -1)
    hidden = ~mask[:, None, None]
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
    y = (weights.flatten(2, 3) @ v).view(batch, kv_heads, heads // kv_heads, seq, dim)
    return y.transpose(1, 2).reshape(batch, heads, seq, dim)
