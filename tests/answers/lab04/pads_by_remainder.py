# kind: wrong
# about: Pads by n % p in place of -n % p; at p = 2 both are the same (Z07).
# loses: layout_sizes
# says: "layout_sizes": "n % p is what is left over, not what is missing"

# %% solution="shard_layout"
def shard_layout(numel, ranks):
    padded = numel + numel % ranks
    shard = -(-padded // ranks)
    return padded, [min(max(numel - rank * shard, 0), shard) for rank in range(ranks)]


# %% solution="flatten"
def flatten(tensors, ranks):
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    return F.pad(flat, (0, -flat.numel() % ranks))


# %% solution="save_state"
def save_state(state, numel, ranks, rank):
    shard = -(-numel // ranks)
    mine = min(max(numel - rank * shard, 0), shard)
    return {name: tensor[:mine] if tensor.dim() else tensor for name, tensor in state.items()}
