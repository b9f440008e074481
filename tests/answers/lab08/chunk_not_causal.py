# kind: wrong
# about: Only the first call is causal: right as long as later ones bring single tokens.
# loses: cache_chunks, cache_ragged
# says: "cache_chunks": "the later ones too"

# %% edit="kv_cache"
# replace
        mask = visible(positions, self.positions[:, :end])
# by
        mask = visible(positions, self.positions[:, :end])
        if end > q.shape[2]:
            mask = (self.positions[:, None, :end] >= 0).expand(-1, q.shape[2], -1)
