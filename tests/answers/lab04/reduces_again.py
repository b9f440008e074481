# kind: wrong
# about: The gradients stay in .grad, so the next backward adds to them and they are reduced again (Z03).
# loses: unit_gradients, zero1_values, zero1_bytes, zero2_values, zero2_bytes, zero3_values, zero3_rest, zero3_peak, clip_step
# says: "unit_gradients": "still have a .grad"
# says: "zero2_values": "the first backward pass counts twice"
# says: "zero1_bytes": "whole copies of parameters or gradients are not kept"
# says: "zero2_bytes": "after backward"
# says: "zero3_rest": "holds 7.85 bytes a parameter; about 4 is enough"

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
        piece = torch.empty_like(self.shard)
        dist.reduce_scatter_single(piece, flat)
        self.grad += piece / self.ranks
