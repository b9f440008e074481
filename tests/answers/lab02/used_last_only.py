# kind: wrong
# about: D07: a parameter that the last micro-batch did not use counts as zero, although an earlier one used it.
# loses: bucket_no_sync
# says: "bucket_no_sync": "2 micro-batches, 1 in no_sync"

# %% edit="bucketed_data_parallel"
# replace
        self.missing = [len(bucket) for bucket in self.buckets]
# by
        self.missing = [len(bucket) for bucket in self.buckets]
        self.fired = set()

# replace
        if self.sync:
# by
        if self.sync:
            self.fired.add(p)

# replace
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
# by
        parts = [p.grad if p in self.fired else torch.zeros_like(p) for p in bucket]
