# kind: wrong
# about: bucket_bytes is ignored: one all-reduce for each parameter.
# loses: bucket_sizes
# says: "bucket_sizes": "one all-reduce for each parameter"

# %% edit="bucketed_data_parallel"
# replace
            if self.buckets[-1] and self._bytes([*self.buckets[-1], p]) > bucket_bytes:
# by
            if self.buckets[-1]:
