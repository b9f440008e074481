# kind: right
# about: Tensors and lengths for each layer, allocated at the first call.

# %% solution="kv_cache"
class KVCache:
    def __init__(self, config, batch, capacity, dtype=torch.float32):
        self.shape, self.dtype = (batch, config.kv_heads, capacity, config.head_dim), dtype
        self.lengths, self.kept = [0] * config.layers, {}

    def attention(self, layer, q, k, v, positions):
        if layer not in self.kept:
            keys, values = (torch.empty(self.shape, dtype=self.dtype) for _ in "kv")
            self.kept[layer] = keys, values, torch.full((self.shape[0], self.shape[2]), -1, dtype=torch.int32)
        keys, values, places = self.kept[layer]
        start, count = self.lengths[layer], q.shape[2]
        keys.narrow(2, start, count).copy_(k)
        values.narrow(2, start, count).copy_(v)
        places.narrow(1, start, count).copy_(positions)
        self.lengths[layer] = start + count
        seen = slice(0, start + count)
        return gqa_attention(q, keys[:, :, seen], values[:, :, seen], visible(positions, places[:, seen]))
