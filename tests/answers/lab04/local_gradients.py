# kind: wrong
# about: Each owner uses the gradients of its own rows: nothing is summed.
# loses: zero1_values, zero1_traffic
# says: "zero1_traffic": "half of it is missing"

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, model, make_optimizer):
        self.unit = ShardedUnit(list(model.parameters()))
        self.optimizer = make_optimizer(
            *owned_segments(self.unit.params, self.unit.shard, self.unit.grad, dist.get_rank())
        )

    def step(self):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.unit.params]
        self.unit.grad.copy_(flatten(grads, dist.get_world_size()).chunk(dist.get_world_size())[dist.get_rank()])
        self.optimizer.step()
        shapes = [param.shape for param in self.unit.params]
        for param, view in zip(self.unit.params, unflatten(self.unit.gather(), shapes), strict=True):
            param.data.copy_(view)
            param.grad = None
