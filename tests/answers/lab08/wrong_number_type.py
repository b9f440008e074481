# kind: wrong
# about: Always float32, whatever was asked for.
# loses: cache_bytes
# says: "cache_bytes": "twice too much; another number type"

# %% edit="kv_cache"
# replace
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# by
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim)
# replace
        return gqa_attention(q, keys[:, :, :end], values[:, :, :end], mask)
# by
        return gqa_attention(q.float(), keys[:, :, :end], values[:, :, :end], mask).to(q.dtype)
