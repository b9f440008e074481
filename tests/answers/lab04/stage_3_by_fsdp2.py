# kind: wrong
# about: Wraps torch's fully_shard: right values and bytes, and nothing of it was written by hand.
# loses: zero3_rest, zero3_peak, zero3_traffic, zero3_prefetch
# says: "zero3_traffic": "write it yourself, without"

# %% solution="zero_three"
class ZeroThree:
    def __init__(self, model, blocks, make_optimizer):
        from torch.distributed.fsdp import fully_shard

        for block in blocks:
            fully_shard(block)
        fully_shard(model)
        self.model = model
        self.pieces = [p.detach().to_local() for p in model.parameters()]
        matrices = [p.dim() >= 2 for p in model.parameters()]
        lists = ([piece for piece, matrix in zip(self.pieces, matrices) if matrix is which] for which in (True, False))
        self.optimizer = make_optimizer(*lists)

    def step(self):
        for param, piece in zip(self.model.parameters(), self.pieces):
            piece.grad = None if param.grad is None else param.grad.to_local()
            param.grad = None
        self.optimizer.step()
        for piece in self.pieces:
            piece.grad = None

    def full_parameters(self):
        return {name: p.full_tensor().detach().clone() for name, p in self.model.named_parameters()}
