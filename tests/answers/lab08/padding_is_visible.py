# kind: wrong
# about: Causal only: -1 is below every position, so padding is seen (K04).
# loses: visible_pairs, cache_ragged, generate_ragged, window_values, window_long_calls
# says: "visible_pairs": "padding (position -1) is visible"
# says: "cache_ragged": "padding is seen"
# says: "generate_ragged": "padding is seen"

# %% edit="visible"
# replace
    mask = (keys >= 0) & (keys <= queries)
# by
    mask = keys <= queries
