# kind: wrong
# about: All-reduces gradients of which a rank needs one piece: 3 and 4 times the parameters travel.
# loses: zero1_traffic, zero2_traffic, zero3_traffic
# says: "zero1_traffic": "sends 3 times (p-1)/p of the model"
# says: "zero2_traffic": "the gradients were all-reduced"
# says: "zero3_traffic": "gradients all-reduced where a reduce-scatter is enough"

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
        dist.all_reduce(flat)
        self.grad += flat.chunk(self.ranks)[self.rank] / self.ranks
