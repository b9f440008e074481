# kind: wrong
# about: Takes the gradients of the newest backward pass only (Z02), in ZeroTwo itself.
# loses: zero2_values, zero2_bytes
# says: "zero2_values": "only the last backward pass counts: what was added up before it was overwritten"

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
        self.ready = [set() for _ in self.units]
        for index, unit in enumerate(self.units):
            for param in unit.params:
                param.register_post_accumulate_grad_hook(lambda param, index=index: self.arrived(index, param))

    def arrived(self, index, param):
        self.ready[index].add(param)
        if len(self.ready[index]) == len(self.units[index].params):
            self.reduce(index)

    def reduce(self, index):
        self.ready[index].clear()
        unit = self.units[index]
        before = unit.grad.clone()
        unit.reduce_gradients()
        unit.kept = [unit.grad - before, *getattr(unit, "kept", [])]

    def step(self):
        for index in range(len(self.units)):
            if self.ready[index]:
                self.reduce(index)
        for unit in self.units:
            unit.grad.copy_(unit.kept[0])
            unit.kept = []
        self.spread()
