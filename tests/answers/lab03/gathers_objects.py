# kind: wrong
# about: Sends pickled objects around where a flag would do.
# loses: scaler_agreement
# says: "scaler_agreement": "calls; a flag is enough, at most"

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
        if not dist.is_initialized():
            return bad
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, {"rank": dist.get_rank(), "overflow": bad, "grads": [grad.numel() for grad in grads]})
        return any(one["overflow"] for one in everyone)

    def update(self, overflow):
        if overflow:
            self.factor /= 2
            self.good = 0
            return
        self.good += 1
        if self.good == self.growth_interval:
            self.factor *= 2
            self.good = 0
