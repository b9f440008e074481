# kind: right
# about: Stage 1 with a reduce to each owner and a broadcast from each owner.

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, model, make_optimizer):
        self.unit = ShardedUnit(list(model.parameters()))
        self.optimizer = make_optimizer(
            *owned_segments(self.unit.params, self.unit.shard, self.unit.grad, dist.get_rank())
        )

    def step(self):
        unit, ranks, rank = self.unit, dist.get_world_size(), dist.get_rank()
        flat = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in unit.params], ranks)
        for owner, piece in enumerate(flat.chunk(ranks)):
            dist.reduce(piece, owner)
        unit.grad.copy_(flat.chunk(ranks)[rank] / ranks)
        self.optimizer.step()
        for owner, piece in enumerate(flat.chunk(ranks)):
            if owner == rank:
                piece.copy_(unit.shard)
            dist.broadcast(piece, owner)
        for param, view in zip(unit.params, unflatten(flat, [p.shape for p in unit.params]), strict=True):
            param.data.copy_(view)
            param.grad = None
