# kind: wrong
# about: The all-reduce in the hook blocks: backward stands still while it travels.
# loses: bucket_overlap
# says: "bucket_overlap": "waited for it there"

# %% edit="bucketed_data_parallel"
# replace
        self.started.append((flat, dist.all_reduce(flat, async_op=True)))
# by
        dist.all_reduce(flat)
        self.started.append((flat, None))

# replace
            work.wait()
# by
