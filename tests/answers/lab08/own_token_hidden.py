# kind: wrong
# about: t < p: a query does not see its own key.
# loses: visible_pairs, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "visible_pairs": "the token itself is hidden"
# says: "cache_values": "does not see its own token"

# %% edit="visible"
# replace
    mask = (keys >= 0) & (keys <= queries)
# by
    mask = (keys >= 0) & (keys < queries)
