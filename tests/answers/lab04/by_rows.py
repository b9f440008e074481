# kind: right
# about: Stage 1 that shards every parameter by its rows, in uneven chunks, with no flat vector at all.

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, model, make_optimizer):
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        self.params = list(model.parameters())
        self.pieces = [nn.Parameter(p.detach().tensor_split(self.ranks)[self.rank].clone()) for p in self.params]
        matrices = [p.dim() >= 2 for p in self.params]
        self.optimizer = make_optimizer(
            [piece for piece, matrix in zip(self.pieces, matrices, strict=True) if matrix],
            [piece for piece, matrix in zip(self.pieces, matrices, strict=True) if not matrix],
        )

    def step(self):
        for param, piece in zip(self.params, self.pieces, strict=True):
            grad = torch.zeros_like(param) if param.grad is None else param.grad
            parts = [part.clone() for part in grad.tensor_split(self.ranks)]
            for owner, part in enumerate(parts):
                dist.reduce(part, owner)
            piece.grad = parts[self.rank] / self.ranks
            param.grad = None
        self.optimizer.step()
        for param, piece in zip(self.params, self.pieces, strict=True):
            piece.grad = None
            parts = [torch.empty_like(part) for part in param.detach().tensor_split(self.ranks)]
            for owner, part in enumerate(parts):
                if owner == self.rank:
                    part.copy_(piece.detach())
                dist.broadcast(part, owner)
            param.data.copy_(torch.cat(parts))
