# kind: wrong
# about: Keeps window - 2 places: the oldest token that is still visible is gone.
# loses: window_values, window_long_calls

# %% edit="window_cache"
# replace
        last = slice(max(places.shape[1] - self.window, 0), None)
# by
        last = slice(max(places.shape[1] - max(self.window - 2, 0), 0), None)
