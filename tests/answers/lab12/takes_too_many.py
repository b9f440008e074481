# kind: wrong
# about: A token without room ends in an error of torch, not in a sentence.
# loses: int8_bytes
# says: "int8_bytes": "raise a ValueError"

# %% edit="int8_cache"
# replace
        if end > self.levels.shape[4]:
            raise ValueError(f"{end} tokens; there is room for {self.levels.shape[4]}")
# by
