# kind: wrong
# about: Groups every K-th rank; the ranks that share a KV head are neighbours.
# loses: attention_shared_kv
# says: "attention_shared_kv": "make_kv_group (p = 4"

# %% solution="parallel_attention"
def make_kv_group(kv_heads):
    rank, world = dist.get_rank(), dist.get_world_size()
    if kv_heads >= world:
        return None
    groups = [dist.new_group(list(range(first, world, kv_heads))) for first in range(kv_heads)]
    return groups[rank % kv_heads]


def parallel_attention(x, qkv, qkv_bias, out, out_bias, heads, kv_heads, group=None, kv_group=None):
    dim = qkv.shape[0] // (heads + 2 * kv_heads)
    if kv_group is not None:
        own = heads * dim
        qkv = torch.cat([qkv[:own], copy_to(qkv[own:], kv_group)])
        qkv_bias = torch.cat([qkv_bias[:own], copy_to(qkv_bias[own:], kv_group)])
    rows = column_linear(x, qkv, qkv_bias, group).unflatten(-1, (-1, dim)).transpose(1, 2)
    q, k, v = rows.split([heads, kv_heads, kv_heads], dim=1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return row_linear(y.transpose(1, 2).flatten(2), out, out_bias, group)
