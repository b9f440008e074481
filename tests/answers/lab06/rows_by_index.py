# kind: right
# about: Rows by lists of heads; gate and up by a third dimension.

# %% solution="shard_fused"
def shard_gate_up(weight, rank, world):
    halves = weight.view(2, world, weight.shape[0] // 2 // world, *weight.shape[1:])
    return halves[:, rank].reshape(-1, *weight.shape[1:]).clone()


def shard_qkv(weight, heads, kv_heads, rank, world):
    queries = [head for head in range(heads) if head * world // heads == rank]
    kv = sorted({head * kv_heads // heads for head in queries})
    order = queries + [heads + head for head in kv] + [heads + kv_heads + head for head in kv]
    by_head = weight.view(heads + 2 * kv_heads, -1, *weight.shape[1:])
    return by_head[order].flatten(0, 1)
