# kind: wrong
# about: The mask of every call begins at the first cached token (K07).
# loses: cache_chunks, cache_ragged
# says: "cache_chunks": "the mask forgets those that are cached"

# %% edit="kv_cache"
# replace
        mask = visible(positions, self.positions[:, :end])
# by
        seq = q.shape[2]
        mask = torch.ones(seq, end, dtype=torch.bool).tril() & (self.positions[:, None, :end] >= 0)
        if seq == 1:
            mask = self.positions[:, None, :end] >= 0
