# kind: right
# about: All ranks' flags are gathered, and the largest gradient decides.

# %% solution="loss_scaler"
class LossScaler:
    def __init__(self, factor=2.0**16, growth_interval=2000):
        self.factor, self.growth_interval, self.good = factor, growth_interval, 0

    def scale(self, loss):
        return loss * self.factor

    def unscale(self, grads):
        bad = False
        for grad in grads:
            grad.div_(self.factor)
            bad = bad or bool(grad.numel()) and not math.isfinite(grad.abs().max())
        if not dist.is_initialized():
            return bad
        flags = [torch.zeros(1, dtype=torch.uint8) for _ in range(dist.get_world_size())]
        dist.all_gather(flags, torch.tensor([bad], dtype=torch.uint8))
        return bool(torch.cat(flags).any())

    def update(self, overflow):
        if overflow:
            self.factor /= 2
            self.good = 0
            return
        self.good += 1
        if self.good == self.growth_interval:
            self.factor *= 2
            self.good = 0
