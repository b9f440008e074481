# kind: right
# about: ReduceOp.AVG; the sum is never divided by hand; no_sync is a class.

# %% solution="bucketed_data_parallel"
class Quiet:
    def __init__(self, dp):
        self.dp = dp

    def __enter__(self):
        self.before, self.dp.sync = self.dp.sync, False

    def __exit__(self, *error):
        self.dp.sync = self.before


class BucketedDataParallel:
    def __init__(self, model, bucket_bytes):
        self.model, self.sync = model, True
        self.buckets, self.place, room = [], {}, -1
        for p in list(model.parameters())[::-1]:
            if not p.requires_grad:
                continue
            if p.nbytes > room:
                self.buckets.append([])
                room = bucket_bytes
            room -= p.nbytes
            self.place[p] = len(self.buckets) - 1
            self.buckets[-1].append(p)
            p.register_post_accumulate_grad_hook(self.arrived)
        self.open = [set(bucket) for bucket in self.buckets]
        self.travelling = []

    def arrived(self, p):
        if not self.sync:
            return
        self.open[self.place[p]].discard(p)
        while len(self.travelling) < len(self.buckets) and not self.open[len(self.travelling)]:
            self.send()

    def send(self):
        bucket = self.buckets[len(self.travelling)]
        for p in bucket:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        flat = torch.cat([p.grad.flatten() for p in bucket])
        self.travelling.append((bucket, flat, dist.all_reduce(flat, dist.ReduceOp.AVG, async_op=True)))

    def __call__(self, *args):
        return self.model(*args)

    def finish(self):
        while len(self.travelling) < len(self.buckets):
            self.send()
        for bucket, flat, work in self.travelling:
            work.wait()
            start = 0
            for p in bucket:
                p.grad.copy_(flat[start : start + p.numel()].view(p.shape))
                start += p.numel()
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)
        self.open, self.travelling = [set(bucket) for bucket in self.buckets], []

    def no_sync(self):
        return Quiet(self)
