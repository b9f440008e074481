# kind: wrong
# about: True where a key is hidden, as in masked_fill.
# loses: visible_pairs, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "visible_pairs": "it is the complement"

# %% edit="visible"
# replace
    return mask
# by
    return ~mask
