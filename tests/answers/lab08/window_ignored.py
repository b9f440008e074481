# kind: wrong
# about: The window is not applied.
# loses: visible_pairs, window_values, window_long_calls
# says: "visible_pairs": "the window was not applied"

# %% edit="visible"
# replace
        mask &= queries - keys < window
# by
        pass
