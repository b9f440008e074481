# kind: right
# about: Key tiles only, each for all rows from the first to the last that see it; partial results are merged.

# %% solution="blockwise_forward"
def blockwise_forward(q, k, v, q_pos, k_pos, tile, **rule):
    out, lse = torch.zeros(q.shape), torch.full(q.shape[:-1], -math.inf)
    for begin in range(0, k.shape[2], tile):
        key, value = (x[:, :, begin : begin + tile].to(torch.float32) for x in (k, v))
        some = torch.zeros(len(q_pos), dtype=torch.bool)
        for row in range(0, len(q_pos), tile):
            some[row : row + tile] = visible(q_pos[row : row + tile], k_pos[begin : begin + tile], **rule).any()
        if not some.any():
            continue
        first, last = int(some.nonzero()[0]), int(some.nonzero()[-1]) + 1
        seen = visible(q_pos[first:last], k_pos[begin : begin + tile], **rule)
        scores = torch.einsum("bnqd,bnkd->bnqk", q[:, :, first:last].to(torch.float32), key) / q.shape[-1] ** 0.5
        scores = torch.where(seen, scores, -math.inf)
        new = scores.logsumexp(-1)
        weights = (scores - new.masked_fill(new == -math.inf, 0).unsqueeze(-1)).exp_()
        both = torch.logaddexp(lse[:, :, first:last], new)
        safe = both.masked_fill(both == -math.inf, 0)
        out[:, :, first:last] *= (lse[:, :, first:last] - safe).exp().unsqueeze(-1)
        out[:, :, first:last] += (new - safe).exp().unsqueeze(-1) * (weights @ value)
        lse[:, :, first:last] = both
    return out, lse
