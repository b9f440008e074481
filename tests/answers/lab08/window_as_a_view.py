# kind: wrong
# about: Keeps a view of the last places, and with it all of the larger tensor.
# loses: window_bytes
# says: "window_bytes": "a view of the last ones keeps the others alive"

# %% edit="window_cache"
# replace
        self.kept[layer] = (keys[:, :, last].clone(), values[:, :, last].clone(), places[:, last].clone())
# by
        self.kept[layer] = (keys[:, :, last], values[:, :, last], places[:, last])
