# kind: wrong
# about: The store belongs to the class, so caches write over each other.
# loses: cache_values

# %% solution="kv_cache"
class KVCache:
    stores = {}

    def __init__(self, config, batch, capacity, dtype=torch.float32):
        self.layers, self.length = config.layers, 0
        self.shape = config.layers, 2, batch, config.kv_heads, capacity, config.head_dim
        self.stores.setdefault(self.shape, torch.zeros(self.shape, dtype=dtype))
        self.positions = torch.full((batch, capacity), -1)

    def attention(self, layer, q, k, v, positions):
        end = self.length + q.shape[2]
        if end > self.shape[4]:
            raise ValueError("full")
        keys, values = self.stores[self.shape][layer]
        keys[:, :, self.length : end], values[:, :, self.length : end] = k, v
        self.positions[:, self.length : end] = positions
        if layer == self.layers - 1:
            self.length = end
        mask = visible(positions, self.positions[:, :end])
        return gqa_attention(q, keys[:, :, :end], values[:, :, :end], mask)
