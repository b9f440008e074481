# kind: wrong
# about: Hides what is old, and keeps it.
# loses: window_bytes
# says: "window_bytes": "as if all tokens were kept"

# %% edit="window_cache"
# replace
        last = slice(max(places.shape[1] - self.window, 0), None)
# by
        last = slice(0, None)
