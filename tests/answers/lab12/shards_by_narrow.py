# kind: right
# about: narrow, and copies.

# %% solution="shard_weights"
def shard_weights(weights, config, rank, world):
    for count in (config.heads, config.kv_heads):
        if count % world:
            raise ValueError(f"TP {world}: neither {config.heads} nor {config.kv_heads} heads may be cut")

    def piece(name, weight):
        if weight.dim() == 1:
            return weight.clone()
        dim = int(name.split(".")[-2] in ("attn_output", "ffn_down"))
        size = weight.shape[dim] // world
        return torch.narrow_copy(weight, dim, rank * size, size).contiguous()

    return {name: piece(name, weight) for name, weight in weights.items()}
