# kind: wrong
# about: The flags are combined with MIN: only where all ranks overflow.
# loses: scaler_agreement, skipped_step
# says: "scaler_agreement": "only): unscale returned [False, False]; all ranks must return True"
# says: "skipped_step": "returned True; wanted False"

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
            bad = bad or not bool(torch.isfinite(grad).all())
        flag = torch.tensor([float(bad)])
        if dist.is_initialized():
            dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        return flag.item() > 0

    def update(self, overflow):
        if overflow:
            self.factor /= 2
            self.good = 0
            return
        self.good += 1
        if self.good == self.growth_interval:
            self.factor *= 2
            self.good = 0
