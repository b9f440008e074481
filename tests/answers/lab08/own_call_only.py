# kind: wrong
# about: Keeps everything and reads only what this call brought.
# loses: cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged
# says: "cache_values": "what earlier calls left is not read"

# %% edit="kv_cache"
# replace
        return gqa_attention(q, keys[:, :, :end], values[:, :, :end], mask)
# by
        return gqa_attention(q, k, v, visible(positions, positions))
