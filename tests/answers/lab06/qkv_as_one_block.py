# kind: wrong
# about: Gate and up are cut apart, Q, K and V are not (T14).
# loses: shard_fused_rows, shard_few_kv
# says: "shard_fused_rows": "[Q, K, V] was cut as one block"

# %% solution="shard_fused"
def shard_gate_up(weight, rank, world):
    gate, up = weight.chunk(2)
    return torch.cat([gate.chunk(world)[rank], up.chunk(world)[rank]])


def shard_qkv(weight, heads, kv_heads, rank, world):
    return weight.tensor_split(world)[rank].clone()
