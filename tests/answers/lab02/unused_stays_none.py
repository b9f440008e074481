# kind: wrong
# about: D09: the mean is written only where this rank had a gradient.
# loses: bucket_unused, bucket_no_sync
# says: "bucket_unused": "is None"

# %% edit="bucketed_data_parallel"
# replace
                p.grad = part.view_as(p)
# by
                if p.grad is not None:
                    p.grad.copy_(part.view_as(p))
