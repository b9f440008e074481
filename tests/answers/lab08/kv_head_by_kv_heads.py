# kind: wrong
# about: Query head n reads KV head n // K (Q02): right only where N = K * K.
# loses: gqa_values, gqa_memory, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "gqa_values": "n // K; that is n * K // N only where"

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    heads, kv_heads, dim = q.shape[1], k.shape[1], q.shape[-1]
    which = (torch.arange(heads) // kv_heads).clamp(max=kv_heads - 1)
    scores = q @ k[:, which].mT / math.sqrt(dim)
    hidden = ~mask[:, None]
    return scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0) @ v[:, which]
