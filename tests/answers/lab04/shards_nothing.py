# kind: wrong
# about: All-reduces gradients and updates everything everywhere: right values and traffic, nothing sharded.
# loses: zero1_bytes
# says: "zero1_bytes": "nothing is sharded. With 4 ranks its share is about 3368"

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, model, make_optimizer):
        self.params = list(model.parameters())
        self.optimizer = make_optimizer(
            [p for p in self.params if p.dim() >= 2], [p for p in self.params if p.dim() < 2]
        )

    def step(self):
        for param in self.params:
            if param.grad is not None:
                dist.all_reduce(param.grad)
                param.grad /= dist.get_world_size()
        self.optimizer.step()
        for param in self.params:
            param.grad = None
