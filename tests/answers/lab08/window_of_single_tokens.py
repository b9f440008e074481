# kind: right
# about: A list of tokens for each layer; long calls go through one query at a time.

# %% solution="window_cache"
class WindowCache:
    def __init__(self, config, batch, window, dtype=torch.float32):
        self.window, self.kept = window, [[] for _ in range(config.layers)]

    def attention(self, layer, q, k, v, positions):
        outputs = []
        for i in range(q.shape[2]):
            kept = self.kept[layer]
            kept.append((k[:, :, i : i + 1].clone(), v[:, :, i : i + 1].clone(), positions[:, i : i + 1].clone()))
            del kept[: -self.window]
            keys, values, places = (torch.cat(parts, dim) for parts, dim in zip(zip(*kept), (2, 2, 1)))
            mask = visible(positions[:, i : i + 1], places)
            outputs.append(gqa_attention(q[:, :, i : i + 1], keys, values, mask))
        return torch.cat(outputs, 2)
