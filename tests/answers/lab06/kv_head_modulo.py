# kind: wrong
# about: Gives rank r KV head r % K in place of r * K // p (T16).
# loses: shard_few_kv
# says: "shard_few_kv": "r * K // p"

# %% solution="shard_fused"
def shard_gate_up(weight, rank, world):
    gate, up = weight.chunk(2)
    return torch.cat([gate.chunk(world)[rank], up.chunk(world)[rank]])


def shard_qkv(weight, heads, kv_heads, rank, world):
    dim = weight.shape[0] // (heads + 2 * kv_heads)
    q, k, v = weight.split([heads * dim, kv_heads * dim, kv_heads * dim])
    own = max(kv_heads // world, 1)
    first = (rank % kv_heads if kv_heads < world else rank * own) * dim
    rows = slice(first, first + own * dim)
    return torch.cat([q.chunk(world)[rank], k[rows], v[rows]])
