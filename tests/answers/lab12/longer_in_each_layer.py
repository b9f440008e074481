# kind: wrong
# about: The cache grows by the call in every layer.
# loses: int8_values, int8_bytes

# %% edit="int8_cache"
# replace
        if layer == len(self.levels) - 1:
            self.length = end
# by
        self.length = end
