# kind: right
# about: Attention over the whole capacity, what is not written hidden by its position.

# %% edit="kv_cache"
# replace
        mask = visible(positions, self.positions[:, :end])
        return gqa_attention(q, keys[:, :, :end], values[:, :, :end], mask)
# by
        mask = visible(positions, self.positions)
        return gqa_attention(q, keys, values, mask)
