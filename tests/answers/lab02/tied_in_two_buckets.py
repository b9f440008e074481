# kind: wrong
# about: Collects parameters module by module: the shared weight is in two buckets.
# loses: bucket_sizes, bucket_no_sync
# says: "bucket_sizes": "the shared weight travels twice"
# says: "bucket_no_sync": "DistributedDataParallel sends"

# %% edit="bucketed_data_parallel"
# replace
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
# by
        for p in reversed([p for m in model.modules() for p in m.parameters(recurse=False) if p.requires_grad]):
