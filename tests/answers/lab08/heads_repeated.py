# kind: wrong
# about: The right values, with k and v repeated for every query head.
# loses: gqa_memory, cache_step
# says: "gqa_memory": "as if k and v were repeated"
# says: "cache_step": "history is copied in every step"

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    hidden = ~mask[:, None]
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
    return scores.softmax(-1).masked_fill(hidden, 0.0) @ v
