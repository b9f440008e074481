# kind: wrong
# about: Divides before and after the sum.
# loses: unit_gradients, zero1_values, zero2_values, zero3_values, clip_step
# says: "unit_gradients": "divided by 2 twice"
# says: "zero1_values": "divided by 2 twice"

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
        piece = torch.empty_like(self.shard)
        dist.reduce_scatter_single(piece, flat / self.ranks)
        self.grad += piece / self.ranks
