# kind: wrong
# about: Keys and values that went through int8 are kept in float32.
# loses: int8_bytes
# says: "int8_bytes": "are enough"

# %% edit="int8_cache"
# replace
        self.levels = torch.zeros(*shape, config.head_dim, dtype=torch.int8)
# by
        self.levels = torch.zeros(*shape, config.head_dim, dtype=torch.float32)
