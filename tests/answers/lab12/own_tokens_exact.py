# kind: wrong
# about: Tokens of the call attend to their own keys and values as they were.
# loses: int8_values
# says: "int8_values": "Int8Cache"

# %% edit="int8_cache"
# replace
        if layer == len(self.levels) - 1:
# by
        keys, values = (torch.cat([kept[:, :, :start], new], 2) for kept, new in ((keys, k), (values, v)))
        if layer == len(self.levels) - 1:
