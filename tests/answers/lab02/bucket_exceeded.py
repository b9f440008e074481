# kind: wrong
# about: A bucket is closed only after it exceeds bucket_bytes.
# loses: bucket_sizes, bucket_overlap
# says: "bucket_sizes": "wanted [27, 56, 64, 40, 27, 56, 64, 40]"

# %% edit="bucketed_data_parallel"
# replace
            if self.buckets[-1] and self._bytes([*self.buckets[-1], p]) > bucket_bytes:
# by
            if self.buckets[-1] and self._bytes(self.buckets[-1]) > bucket_bytes:
