# kind: wrong
# about: Counts 4 bytes an element whatever the dtype.
# loses: bucket_sizes
# says: "bucket_sizes": "bucket_bytes = 200"

# %% edit="bucketed_data_parallel"
# replace
        return sum(p.numel() * p.element_size() for p in params)
# by
        return sum(p.numel() * 4 for p in params)
