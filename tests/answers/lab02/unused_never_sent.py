# kind: wrong
# about: D09: finish() does not start the buckets that a rank's batch left incomplete: the others wait for ever.
# loses: bucket_unused, bucket_no_sync

# %% edit="bucketed_data_parallel"
# replace
        while len(self.started) < len(self.buckets):
            self._start()
# by
