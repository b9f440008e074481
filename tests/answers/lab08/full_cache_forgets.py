# kind: wrong
# about: Writes round and round: a token too many overwrites the first.
# loses: cache_bytes
# says: "cache_bytes": "took a token more than it has room for"

# %% edit="kv_cache"
# replace
            raise ValueError(f"{end} tokens; there is room for {self.positions.shape[1]}")
# by
            self.length, end = 0, q.shape[2]
