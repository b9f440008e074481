# kind: wrong
# about: Cuts the fused weights as one block: rank 0 gets Q and a part of K (T14).
# loses: shard_fused_rows, shard_few_kv
# says: "shard_fused_rows": "cut as one block"
# says: "shard_few_kv": "A rank without a key head cannot attend"

# %% solution="shard_fused"
def shard_gate_up(weight, rank, world):
    return weight.chunk(world)[rank].clone()


def shard_qkv(weight, heads, kv_heads, rank, world):
    return weight.chunk(world)[rank].clone()
