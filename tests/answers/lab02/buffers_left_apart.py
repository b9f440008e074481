# kind: wrong
# about: finish() leaves the buffers alone: running means differ from rank to rank.
# loses: bucket_replicas
# says: "bucket_replicas": "\"average\""

# %% edit="bucketed_data_parallel"
# replace
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)
# by
