# kind: wrong
# about: Buckets are summed and never divided.
# loses: bucket_values, bucket_unused, bucket_no_sync
# says: "bucket_values": "2 times what is wanted: summed over the 2 ranks but never divided"
# says: "bucket_unused": "never divided"
# says: "bucket_no_sync": "summed over the 2 ranks but never divided"

# %% edit="bucketed_data_parallel"
# replace
            flat /= dist.get_world_size()
# by
