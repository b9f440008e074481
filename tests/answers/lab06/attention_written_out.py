# kind: right
# about: Softmax written out, KV heads by index, gradients of the copies added up by hooks.

# %% solution="parallel_attention"
def make_kv_group(kv_heads):
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = None
    for head in range(kv_heads if kv_heads < world else 0):
        members = [r for r in range(world) if r * kv_heads // world == head]
        group = dist.new_group(members)
        if rank in members:
            mine = group
    return mine


def parallel_attention(x, qkv, qkv_bias, out, out_bias, heads, kv_heads, group=None, kv_group=None):
    dim = qkv.shape[0] // (heads + 2 * kv_heads)
    batch, seq = x.shape[:2]
    x = copy_to(x, group)
    widths = [heads * dim, kv_heads * dim, kv_heads * dim]
    weights, biases = list(qkv.split(widths)), list(qkv_bias.split(widths))
    if kv_group is not None:
        weights[1:] = [copy_to(weight, kv_group) for weight in weights[1:]]
        biases[1:] = [copy_to(bias, kv_group) for bias in biases[1:]]
    q, k, v = (F.linear(x, w, b).view(batch, seq, -1, dim) for w, b in zip(weights, biases, strict=True))
    serves = torch.arange(heads) * kv_heads // heads
    scores = torch.einsum("bshd,bthd->bhst", q, k[:, :, serves]) / math.sqrt(dim)
    scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), -math.inf)
    y = torch.einsum("bhst,bthd->bshd", scores.softmax(-1), v[:, :, serves]).reshape(batch, seq, heads * dim)
    return reduce_from(y @ out.t(), group) + out_bias
