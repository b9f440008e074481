# kind: wrong
# about: Only drops old keys: within a call queries see further back.
# loses: window_values, window_long_calls

# %% edit="window_cache"
# replace
        return gqa_attention(q, keys, values, visible(positions, places, self.window))
# by
        return gqa_attention(q, keys, values, visible(positions, places))
