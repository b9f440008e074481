# kind: wrong
# about: The cache counts places, and takes padding for tokens (K04).
# loses: cache_ragged, generate_ragged
# says: "cache_ragged": "padding is seen"
# says: "generate_ragged": "padding is seen"

# %% edit="kv_cache"
# replace
        mask = visible(positions, self.positions[:, :end])
# by
        places = torch.arange(end).expand(len(positions), -1)
        mask = visible(places[:, end - q.shape[2] :], places)
