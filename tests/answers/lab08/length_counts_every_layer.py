# kind: wrong
# about: Moves on after each layer, so layers write to different places.
# loses: cache_values, cache_chunks, cache_ragged, cache_bytes, cache_step, generate_rows, generate_ragged, generate_work
# says: "cache_values": "room for"

# %% edit="kv_cache"
# replace
        if layer == self.layers - 1:
            self.length = end
# by
        self.length = end
