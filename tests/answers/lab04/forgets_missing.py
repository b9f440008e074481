# kind: wrong
# about: Trips over a parameter that got no gradient (Z04, Z16).
# loses: unit_gradients, zero2_values, zero3_values
# says: "unit_gradients": "has no attribute"
# says: "zero2_values": "has no attribute"

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
        flat = flatten([p.grad for p in self.params], self.ranks)
        for param in self.params:
            param.grad = None
        piece = torch.empty_like(self.shard)
        dist.reduce_scatter_single(piece, flat)
        self.grad += piece / self.ranks
