# kind: wrong
# about: The padding is memory that was never written.
# loses: flatten_values
# says: "flatten_values": "the padding is"

# %% solution="flatten"
def flatten(tensors, ranks):
    numel = sum(tensor.numel() for tensor in tensors)
    flat = torch.full((numel + -numel % ranks,), 3.0)
    flat[:numel] = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    return flat


# %% solution="load_state"
def load_state(saved, ranks, rank):
    state = {}
    for name, tensor in saved[0].items():
        if tensor.dim():
            whole = torch.cat([part[name] for part in saved])
            tensor = F.pad(whole, (0, -len(whole) % ranks)).chunk(ranks)[rank].clone()
        state[name] = tensor
    return state


# %% solution="sharded_unit"
class ShardedUnit:
    def __init__(self, params):
        self.params, self.rank, self.ranks = params, dist.get_rank(), dist.get_world_size()
        self.shard = self._flat(params).chunk(self.ranks)[self.rank].clone()
        self.grad = torch.zeros_like(self.shard)

    def _flat(self, tensors):
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        return F.pad(flat, (0, -len(flat) % self.ranks))

    def reduce_gradients(self):
        flat = self._flat([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        for param in self.params:
            param.grad = None
        piece = torch.empty_like(self.shard)
        dist.reduce_scatter_single(piece, flat)
        self.grad += piece / self.ranks

    def gather(self):
        flat = torch.empty(len(self.shard) * self.ranks)
        dist.all_gather_single(flat, self.shard)
        return flat
