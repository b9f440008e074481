# kind: right
# about: einsum with the group as a dimension of its own; exponentials by hand.

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    batch, heads, seq, dim = q.shape
    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("bkgsd,bktd->bkgst", grouped, k) / dim**0.5
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))[:, None, None]
    top = (scores + bias).amax(-1, keepdim=True).clamp(min=-1e30)
    powers = (scores + bias - top).exp()
    weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.einsum("bkgst,bktd->bkgsd", weights, v).flatten(1, 2)
