# kind: wrong
# about: Keeps a whole flat copy of the parameters and one of the gradients, so little is saved.
# loses: zero1_bytes
# says: "zero1_bytes": "bytes a parameter; about 4 is enough"

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, model, make_optimizer):
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        self.params = list(model.parameters())
        self.flat, self.grads = flatten(self.params, self.ranks), None
        self.shard = self.flat.chunk(self.ranks)[self.rank]
        self.grad = torch.zeros_like(self.shard)
        self.optimizer = make_optimizer(*owned_segments(self.params, self.shard, self.grad, self.rank))

    def step(self):
        self.grads = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params], self.ranks)
        dist.reduce_scatter_single(self.grad, self.grads)
        self.grad /= self.ranks
        self.optimizer.step()
        mine = self.shard.clone()
        dist.all_gather_single(self.flat, mine)
        for param, view in zip(self.params, unflatten(self.flat, [p.shape for p in self.params]), strict=True):
            param.data.copy_(view)
            param.grad = None
