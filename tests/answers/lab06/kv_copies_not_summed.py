# kind: wrong
# about: Copies of a KV head keep their own part of the gradient and drift apart (T16).
# loses: attention_shared_kv
# says: "attention_shared_kv": "this rank's part of the gradient only"

# %% solution="parallel_attention"
def make_kv_group(kv_heads):
    rank, world = dist.get_rank(), dist.get_world_size()
    if kv_heads >= world:
        return None
    share = world // kv_heads
    groups = [dist.new_group(list(range(first, first + share))) for first in range(0, world, share)]
    return groups[rank // share]


def parallel_attention(x, qkv, qkv_bias, out, out_bias, heads, kv_heads, group=None, kv_group=None):
    dim = qkv.shape[0] // (heads + 2 * kv_heads)
    rows = column_linear(x, qkv, qkv_bias, group).unflatten(-1, (-1, dim)).transpose(1, 2)
    q, k, v = rows.split([heads, kv_heads, kv_heads], dim=1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return row_linear(y.transpose(1, 2).flatten(2), out, out_bias, group)
