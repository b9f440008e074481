# kind: wrong
# about: Looks for inf, but does not divide by the factor.
# loses: scaler_schedule, scaler_agreement, skipped_step
# says: "scaler_schedule": "times what is wanted: they were not divided by the factor"
# says: "scaler_agreement": "times what is wanted: they were not divided by the factor"
# says: "skipped_step": "after a skipped step, which leaves m, v and the step count untouched: the tensor"

# %% solution="loss_scaler"
class LossScaler:
    def __init__(self, factor=2.0**16, growth_interval=2000):
        self.factor, self.growth_interval, self.good = factor, growth_interval, 0

    def scale(self, loss):
        return loss * self.factor

    def unscale(self, grads):
        bad = False
        for grad in grads:
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
            self.factor *= 2
            self.good = 0
