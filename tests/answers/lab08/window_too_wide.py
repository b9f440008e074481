# kind: wrong
# about: p - t <= window: one token more than the window.
# loses: visible_pairs, window_values, window_long_calls
# says: "visible_pairs": "one token too wide"

# %% edit="visible"
# replace
        mask &= queries - keys < window
# by
        mask &= queries - keys <= window
