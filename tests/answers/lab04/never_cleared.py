# kind: wrong
# about: The gradients of the step before are still in the shard: right in step 1, wrong in step 2.
# loses: zero1_values
# says: "zero1_values": "after step 2"

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
        shapes = [param.shape for param in self.unit.params]
        for param, view in zip(self.unit.params, unflatten(self.unit.gather(), shapes), strict=True):
            param.data.copy_(view)
