# kind: wrong
# about: Buckets are filled from the first layer on: the first is complete last.
# loses: bucket_sizes, bucket_overlap
# says: "bucket_sizes": "buckets are filled from the first layer on"
# says: "bucket_overlap": "had started none of its 4 all-reduces"

# %% edit="bucketed_data_parallel"
# replace
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
# by
        for p in [p for p in model.parameters() if p.requires_grad]:
