# kind: wrong
# about: Keeps each KV head once for every query head that reads it.
# loses: cache_bytes
# says: "cache_bytes": "kept once for every query head"

# %% edit="kv_cache"
# replace
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# by
        self.store = torch.zeros(config.layers, 2, batch, config.heads, capacity, config.head_dim, dtype=dtype)
# replace
    ) -> torch.Tensor:
# by
    ) -> torch.Tensor:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
