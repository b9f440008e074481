# kind: wrong
# about: All layers write to the same store.
# loses: cache_values, cache_chunks, cache_ragged, cache_bytes, cache_step, generate_rows, generate_ragged
# says: "cache_bytes": "room for one layer"

# %% edit="kv_cache"
# replace
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# by
        self.store = torch.zeros(2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# replace
        keys, values = self.store[layer]
# by
        keys, values = self.store
