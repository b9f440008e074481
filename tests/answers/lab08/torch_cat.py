# kind: wrong
# about: Grows by torch.cat: right logits, and the history copied in every step.
# loses: cache_bytes, cache_step
# says: "cache_bytes": "it grows"
# says: "cache_step": "history is copied in every step"

# %% solution="kv_cache"
class KVCache:
    def __init__(self, config, batch, capacity, dtype=torch.float32):
        self.capacity = capacity
        self.kept = [None] * config.layers

    def attention(self, layer, q, k, v, positions):
        if self.kept[layer] is not None:
            keys, values, places = self.kept[layer]
            k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            self.kept[layer] = k, v, torch.cat([places, positions], 1)
        else:
            self.kept[layer] = k, v, positions
        if k.shape[2] > self.capacity:
            raise ValueError("full")
        return gqa_attention(q, k, v, visible(positions, self.kept[layer][2]))
