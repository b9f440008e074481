# kind: wrong
# about: Each backward overwrites what was added up before (Z02).
# loses: unit_gradients, zero2_values, zero3_values
# says: "unit_gradients": "only the newest gradients are there"
# says: "zero2_values": "only the last backward pass counts"

# %% solution="sharded_unit"
class ShardedUnit:
    def __init__(self, params):
        self.params = params
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.shard = flatten(params, self.ranks).chunk(self.ranks)[self.rank].clone()
        self.grad = torch.zeros_like(self.shard)

    def gather(self):
        flat = torch.empty(len(self.shard) * self.ranks)
        dist.all_gather_single(flat, self.shard)
        return flat

    def reduce_gradients(self):
        flat = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params], self.ranks)
        for param in self.params:
            param.grad = None
        dist.reduce_scatter_single(self.grad, flat)
        self.grad /= self.ranks
