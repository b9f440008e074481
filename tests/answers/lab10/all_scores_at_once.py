# kind: wrong
# about: One matrix of all scores: right values, and no blocks at all.
# loses: blockwise_memory, blockwise_work, ring_balance, ring_memory
# says: "blockwise_memory": "MiB at the peak of the forward pass"
# says: "blockwise_work": "tiles in which nothing is visible were computed too"

# %% solution="blockwise_forward"
def blockwise_forward(q, k, v, q_pos, k_pos, tile, **rule):
    seen = visible(q_pos, k_pos, **rule)
    scores = (q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp()
    return weights @ v.float(), lse
