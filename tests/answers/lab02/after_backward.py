# kind: wrong
# about: Buckets are built and sent in finish(): nothing overlaps.
# loses: bucket_overlap
# says: "bucket_overlap": "had started none of its 4 all-reduces"

# %% edit="bucketed_data_parallel"
# replace
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
# by
