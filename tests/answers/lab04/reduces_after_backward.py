# kind: wrong
# about: Reduces when the last gradient of the model has come: all of them are there at once.
# loses: zero2_bytes
# says: "zero2_bytes": "at the peak of backward"

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
        self.count = 0
        self.total = sum(len(unit.params) for unit in self.units)
        for unit in self.units:
            for param in unit.params:
                param.register_post_accumulate_grad_hook(self.arrived)

    def arrived(self, param):
        self.count += 1
        if self.count == self.total:
            self.count = 0
            for unit in self.units:
                unit.reduce_gradients()

    def step(self):
        if self.count:
            self.count = 0
            for unit in self.units:
                unit.reduce_gradients()
        self.spread()
