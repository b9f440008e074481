# kind: wrong
# about: Wraps the model in torch's DistributedDataParallel, which is not allowed.
# loses: bucket_values, bucket_replicas, bucket_sizes, bucket_overlap, bucket_unused, bucket_no_sync
# says: "bucket_values": "ran code of nn/parallel/distributed.py; write it yourself"

# %% solution="bucketed_data_parallel"
class BucketedDataParallel:
    def __init__(self, model, bucket_bytes):
        from torch.nn.parallel import DistributedDataParallel as Ready

        self.ready = Ready(model, bucket_cap_mb=bucket_bytes / 2**20, find_unused_parameters=True)

    def __call__(self, *args):
        return self.ready(*args)

    def finish(self):
        for buffer in self.ready.module.buffers():
            dist.broadcast(buffer, 0)

    def no_sync(self):
        return self.ready.no_sync()
