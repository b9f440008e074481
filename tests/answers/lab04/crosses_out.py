# kind: right
# about: Waits for names to be crossed out instead of counting; looks at .grad for what is left.

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
        self.waiting = {id(unit): {id(param) for param in unit.params} for unit in self.units}
        for unit in self.units:
            for param in unit.params:
                param.register_post_accumulate_grad_hook(lambda param, unit=unit: self.arrived(unit, param))

    def arrived(self, unit, param):
        waiting = self.waiting[id(unit)]
        waiting.discard(id(param))
        if not waiting:
            self.reduce(unit)

    def reduce(self, unit):
        self.waiting[id(unit)] = {id(param) for param in unit.params}
        unit.reduce_gradients()

    def step(self):
        for unit in self.units:
            if any(param.grad is not None for param in unit.params):
                self.reduce(unit)
        self.spread()
