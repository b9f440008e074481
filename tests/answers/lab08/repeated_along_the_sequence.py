# kind: wrong
# about: Repeats dim 1 of [B, S, H, D]: tokens, not heads (Q03).
# loses: gqa_values, gqa_memory, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "gqa_values": "gqa_attention (N = 4, K = 2"

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    heads, dim = q.shape[1], q.shape[-1]
    group = heads // k.shape[1]

    def widened(x):
        batch, _, places, _ = x.shape
        return x.transpose(1, 2).repeat_interleave(group, dim=1).reshape(batch, places, heads, dim).transpose(1, 2)

    scores = q @ widened(k).mT / math.sqrt(dim)
    hidden = ~mask[:, None]
    return scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0) @ widened(v)
