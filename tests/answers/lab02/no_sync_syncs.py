# kind: wrong
# about: no_sync() does nothing: gradients travel after every micro-batch.
# loses: bucket_no_sync
# says: "bucket_no_sync": "inside no_sync(): gradients travel once a step"

# %% edit="bucketed_data_parallel"
# replace
            self.sync = False
# by
