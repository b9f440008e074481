# kind: wrong
# about: torch.empty, and attention over all of it: 0 x NaN is NaN.
# loses: cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged
# says: "cache_values": "holds NaN"
# says: "cache_ragged": "or from unwritten memory"

# %% edit="kv_cache"
# replace
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# by
        self.store = torch.empty(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
# replace
        mask = visible(positions, self.positions[:, :end])
        return gqa_attention(q, keys[:, :, :end], values[:, :, :end], mask)
# by
        mask = visible(positions, self.positions)
        return gqa_attention(q, keys, values, mask)
