# kind: wrong
# about: Keeps the queries too.
# loses: cache_bytes
# says: "cache_bytes": "as if the queries were kept too"

# %% edit="kv_cache"
# replace
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# by
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
        self.queries = torch.zeros(config.layers, batch, config.heads, capacity, config.head_dim, dtype=dtype)
# replace
        self.positions[:, self.length : end] = positions
# by
        self.positions[:, self.length : end] = positions
        self.queries[layer, :, :, self.length : end] = q
