# kind: wrong
# about: Scales kept in float64.
# loses: int8_bytes
# says: "int8_bytes": "are enough"

# %% edit="int8_cache"
# replace
        self.scales = torch.zeros(*shape, 1)
# by
        self.scales = torch.zeros(*shape, 1, dtype=torch.float64)
# replace
        keys, values = self.levels[layer, :, :, :, :end].float() * self.scales[layer, :, :, :, :end]
# by
        keys, values = self.levels[layer, :, :, :, :end].float() * self.scales[layer, :, :, :, :end].float()
