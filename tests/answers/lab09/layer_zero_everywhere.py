# kind: wrong
# about: All layers use the first layer's memory.
# loses: paged_values, paged_writes, engine_outputs
# says: "paged_writes": "cache.k after layer 1"

# %% edit="paged_attention"
# replace
    keys, values = (kept[layer].flatten(0, 1) for kept in (cache.k, cache.v))  # [slots, kv_heads, head_dim], views
# by
    keys, values = (kept[0].flatten(0, 1) for kept in (cache.k, cache.v))  # [slots, kv_heads, head_dim], views
