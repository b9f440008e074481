# kind: wrong
# about: Takes Q, K and V for equally large: chunk(3) on a grouped-query projection (T19).
# loses: shard_fused_rows, shard_few_kv
# says: "shard_fused_rows": "shard_qkv"

# %% solution="shard_fused"
def shard_gate_up(weight, rank, world):
    gate, up = weight.chunk(2)
    return torch.cat([gate.chunk(world)[rank], up.chunk(world)[rank]])


def shard_qkv(weight, heads, kv_heads, rank, world):
    return torch.cat([part.tensor_split(world)[rank] for part in weight.tensor_split(3)])
