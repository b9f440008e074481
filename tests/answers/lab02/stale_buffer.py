# kind: wrong
# about: The flat buffers are kept, and the place of an unused parameter still holds the last step's gradient.
# loses: bucket_unused, bucket_no_sync
# says: "bucket_unused": "in step 1"

# %% edit="bucketed_data_parallel"
# replace
            p.register_post_accumulate_grad_hook(self._ready)
# by
            p.register_post_accumulate_grad_hook(self._ready)
        self.flats = [torch.zeros(sum(p.numel() for p in b), dtype=b[0].dtype) for b in self.buckets]

# replace
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([part.reshape(-1) for part in parts])
# by
        flat = self.flats[len(self.started)]
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            if p.grad is not None:
                part.copy_(p.grad.flatten())

# replace
                p.grad = part.view_as(p)
# by
                p.grad = part.view_as(p).clone()
