# kind: wrong
# about: New keys and values go to a copy of the cache.
# loses: paged_writes, engine_outputs
# says: "paged_writes": "was not written"

# %% edit="paged_attention"
# replace
    keys, values = (kept[layer].flatten(0, 1) for kept in (cache.k, cache.v))  # [slots, kv_heads, head_dim], views
# by
    keys, values = (kept[layer].flatten(0, 1).clone() for kept in (cache.k, cache.v))  # [slots, kv_heads, head_dim], views
