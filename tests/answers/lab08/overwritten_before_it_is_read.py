# kind: wrong
# about: A ring that the call fills before its queries read (K08): right only for single tokens.
# loses: window_long_calls

# %% solution="window_cache"
class WindowCache:
    def __init__(self, config, batch, window, dtype=torch.float32):
        self.window, self.layers, self.length = window, config.layers, 0
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, window, config.head_dim, dtype=dtype)
        self.positions = torch.full((config.layers, batch, window), -1)

    def attention(self, layer, q, k, v, positions):
        keys, values = self.store[layer]
        for i in range(q.shape[2]):
            slot = (self.length + i) % self.window
            keys[:, :, slot], values[:, :, slot] = k[:, :, i], v[:, :, i]
            self.positions[layer, :, slot] = positions[:, i]
        if layer == self.layers - 1:
            self.length += q.shape[2]
        return gqa_attention(q, keys, values, visible(positions, self.positions[layer], self.window))
