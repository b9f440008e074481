# kind: wrong
# about: D09: buckets start when complete, in any order: ranks that used different layers add up different buckets.
# loses: bucket_unused
# says: "bucket_unused": "sizes differ in all_reduce"

# %% solution="bucketed_data_parallel"
class BucketedDataParallel:
    def __init__(self, model, bucket_bytes):
        self.model, self.sync = model, True
        self.buckets, size = [[]], 0
        for p in [p for p in model.parameters() if p.requires_grad][::-1]:
            if self.buckets[-1] and size + p.nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += p.nbytes
        self.bucket_of = {p: k for k, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self.ready)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.works = {}

    def ready(self, p):
        k = self.bucket_of[p]
        if self.sync:
            self.missing[k] -= 1
            if self.missing[k] == 0:
                self.start(k)

    def start(self, k):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.buckets[k]])
        self.works[k] = (flat, dist.all_reduce(flat, async_op=True))

    def __call__(self, *args):
        return self.model(*args)

    def finish(self):
        for k in range(len(self.buckets)):
            if k not in self.works:
                self.start(k)
        for k, (flat, work) in self.works.items():
            work.wait()
            flat /= dist.get_world_size()
            for p, part in zip(self.buckets[k], flat.split([p.numel() for p in self.buckets[k]])):
                p.grad = part.view_as(p)
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)
        self.reset()

    def no_sync(self):
        from contextlib import contextmanager

        @contextmanager
        def quiet():
            self.sync = False
            yield
            self.sync = True

        return quiet()
