# kind: wrong
# about: Each owner updates its shard and writes it into its own model; the others never get it (Z01).
# loses: zero1_values, zero1_traffic
# says: "zero1_values": "owners update their shard, but the new values do not reach every rank"
# says: "zero1_traffic": "half of it is missing"

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, model, make_optimizer):
        self.unit = ShardedUnit(list(model.parameters()))
        self.optimizer = make_optimizer(
            *owned_segments(self.unit.params, self.unit.shard, self.unit.grad, dist.get_rank())
        )

    def step(self):
        self.unit.reduce_gradients()
        self.optimizer.step()
        self.unit.grad.zero_()
        whole = flatten(self.unit.params, dist.get_world_size())
        whole.chunk(dist.get_world_size())[dist.get_rank()].copy_(self.unit.shard)
        shapes = [param.shape for param in self.unit.params]
        for param, view in zip(self.unit.params, unflatten(whole, shapes), strict=True):
            param.data.copy_(view)
