# kind: wrong
# about: bucket_bytes is ignored: everything in one all-reduce, which starts when backward is over.
# loses: bucket_sizes, bucket_overlap
# says: "bucket_sizes": "everything in one bucket"
# says: "bucket_overlap": "had started none of its 1 all-reduce"

# %% edit="bucketed_data_parallel"
# replace
            if self.buckets[-1] and self._bytes([*self.buckets[-1], p]) > bucket_bytes:
                self.buckets.append([])
# by
