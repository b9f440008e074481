# kind: wrong
# about: The hook gets the gradient of this micro-batch alone; what no_sync had added up is lost.
# loses: bucket_no_sync
# says: "bucket_no_sync": "the last micro-batch's gradient alone"

# %% edit="bucketed_data_parallel"
# replace
            p.register_post_accumulate_grad_hook(self._ready)
# by
            p.register_hook(lambda grad, p=p: self._got(p, grad))

# replace
        self.started = []  # (flat gradient, work) of each bucket on its way, in order
# by
        self.fresh = {}
        self.started = []  # (flat gradient, work) of each bucket on its way, in order

    def _got(self, p, grad):
        self.fresh[p] = grad
        self._ready(p)

# replace
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
# by
        parts = [self.fresh.get(p, torch.zeros_like(p)) for p in bucket]
