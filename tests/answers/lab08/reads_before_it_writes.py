# kind: wrong
# about: The query reads the cache before its own key is in it.
# loses: cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged
# says: "cache_values": "sees nothing of its own call"

# %% solution="kv_cache"
class KVCache:
    def __init__(self, config: DecoderConfig, batch: int, capacity: int, dtype: torch.dtype = torch.float32):
        self.layers, self.length = config.layers, 0
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
        self.positions = torch.full((batch, capacity), -1)

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        end = self.length + q.shape[2]
        if end > self.positions.shape[1]:
            raise ValueError(f"{end} tokens; there is room for {self.positions.shape[1]}")
        keys, values = self.store[layer]
        if layer == self.layers - 1:
            self.length = end
        start = end - q.shape[2]
        if start == 0:
            y = gqa_attention(q, k, v, visible(positions, positions))
        else:
            mask = visible(positions, self.positions[:, :start])
            y = gqa_attention(q, keys[:, :, :start], values[:, :, :start], mask)
        keys[:, :, start:end], values[:, :, start:end] = k, v
        self.positions[:, start:end] = positions
        return y
