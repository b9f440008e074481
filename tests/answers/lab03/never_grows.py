# kind: wrong
# about: The scale is never doubled.
# loses: scaler_schedule, scaler_agreement
# says: "scaler_schedule": "it doubles after 2 good steps"
# says: "scaler_agreement": "it doubles after 2 good steps"

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
            self.good = 0
            return
        self.good += 1
        if self.good == self.growth_interval:
            self.good = 0
