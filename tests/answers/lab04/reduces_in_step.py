# kind: wrong
# about: Keeps all gradients until the step and reduces them then: stage 1 under the name of stage 2.
# loses: zero2_bytes, zero2_traffic
# says: "zero2_bytes": "after backward: rank 0 holds"
# says: "zero2_traffic": "had issued 0 of 5 reductions of gradients when backward ended"

# %% solution="zero_two"
class ZeroTwo:
    def __init__(self, model, units, make_optimizer):
        self.units = [ShardedUnit(list(params)) for params in units]
        lists = [[], []]
        for unit in self.units:
            pieces = owned_segments(unit.params, unit.shard, unit.grad, dist.get_rank())
            for joined, mine in zip(lists, pieces, strict=True):
                joined.extend(mine)
        self.optimizer = make_optimizer(*lists)
        self.watch()

    def spread(self):
        self.optimizer.step()
        for unit in self.units:
            unit.grad.zero_()
            views = unflatten(unit.gather(), [param.shape for param in unit.params])
            for param, view in zip(unit.params, views, strict=True):
                param.data.copy_(view)

    def watch(self):
        pass

    def step(self):
        for unit in self.units:
            unit.reduce_gradients()
        self.spread()
