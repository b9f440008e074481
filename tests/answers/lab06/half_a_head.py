# kind: wrong
# about: Splits KV heads by rows although there are fewer than ranks: half a head each (T16).
# loses: shard_few_kv
# says: "shard_few_kv": "wanted"

# %% solution="shard_fused"
def shard_gate_up(weight, rank, world):
    gate, up = weight.chunk(2)
    return torch.cat([gate.chunk(world)[rank], up.chunk(world)[rank]])


def shard_qkv(weight, heads, kv_heads, rank, world):
    dim = weight.shape[0] // (heads + 2 * kv_heads)
    parts = weight.split([heads * dim, kv_heads * dim, kv_heads * dim])
    return torch.cat([part.tensor_split(world)[rank] for part in parts])
