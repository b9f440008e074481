# kind: wrong
# about: finish() does not wait: gradients are read before the all-reduce is done.
# loses: bucket_values, bucket_replicas, bucket_unused, bucket_no_sync
# says: "bucket_values": "was not done yet when finish() returned"

# %% edit="bucketed_data_parallel"
# replace
            work.wait()
            flat /= dist.get_world_size()
# by
            flat = flat / dist.get_world_size()
