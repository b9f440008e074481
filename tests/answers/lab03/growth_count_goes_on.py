# kind: wrong
# about: An overflow does not start the count of good steps anew.
# loses: scaler_schedule, scaler_agreement
# says: "scaler_schedule": "it grew too early; an overflow, and a doubling, start the count anew"
# says: "scaler_agreement": "it grew too early; an overflow, and a doubling, start the count anew"

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
            dist.all_reduce(flag)
        return flag.item() > 0

    def update(self, overflow):
        if overflow:
            self.factor /= 2
            return
        self.good += 1
        if self.good == self.growth_interval:
            self.factor *= 2
            self.good = 0
