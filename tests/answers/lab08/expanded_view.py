# kind: wrong
# about: expand looks free, but the product copies what it expands.
# loses: gqa_memory, cache_step
# says: "gqa_memory": "Read k and v where they lie"

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    batch, heads, seq, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.view(batch, kv_heads, heads // kv_heads, seq, dim)
    hidden = ~mask[:, None, None]
    scores = (grouped @ k[:, :, None].mT / math.sqrt(dim)).masked_fill(hidden, -math.inf)
    return (scores.softmax(-1).masked_fill(hidden, 0.0) @ v[:, :, None]).reshape(batch, heads, seq, dim)
