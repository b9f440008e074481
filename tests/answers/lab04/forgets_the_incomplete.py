# kind: wrong
# about: A unit with a parameter that no loss uses never becomes complete, and is forgotten (Z04, Z16).
# loses: zero2_values

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
        self.ready = [0] * len(self.units)
        for index, unit in enumerate(self.units):
            for param in unit.params:
                param.register_post_accumulate_grad_hook(lambda param, index=index: self.arrived(index))

    def arrived(self, index):
        self.ready[index] += 1
        if self.ready[index] == len(self.units[index].params):
            self.ready[index] = 0
            self.units[index].reduce_gradients()

    def step(self):
        self.spread()
