# kind: right
# about: One KV head after the other.

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    batch, heads, seq, dim = q.shape
    group = heads // k.shape[1]
    result = torch.zeros_like(q)
    for head in range(k.shape[1]):
        own = q[:, head * group : (head + 1) * group].flatten(1, 2)
        scores = torch.bmm(own, k[:, head].mT) * dim**-0.5
        scores = scores.view(batch, group, seq, -1).masked_fill(mask.logical_not()[:, None], -1e30)
        weights = scores.softmax(-1) * mask[:, None]
        y = torch.bmm(weights.flatten(1, 2), v[:, head])
        result[:, head * group : (head + 1) * group] = y.view(batch, group, seq, dim)
    return result


# %% solution="visible"
def visible(query_positions, key_positions, window=None):
    rows = []
    for queries, keys in zip(query_positions.tolist(), key_positions.tolist(), strict=True):
        rows.append([[t in range(max(0, p - (window or p + 1) + 1), p + 1) for t in keys] for p in queries])
    return torch.tensor(rows, dtype=torch.bool).view(len(rows), query_positions.shape[1], key_positions.shape[1])
