# kind: wrong
# about: D12: a bucket counts only once it is full: the last, smaller one is never sent.
# loses: bucket_values, bucket_replicas, bucket_sizes, bucket_unused, bucket_no_sync
# says: "bucket_sizes": "the last bucket was never sent"
# says: "bucket_values": "this rank's own gradient: never averaged"

# %% edit="bucketed_data_parallel"
# replace
            self.buckets[-1].append(p)
# by
            self.buckets[-1].append(p)
        self.buckets.pop()
