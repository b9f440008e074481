# kind: right
# about: torch._foreach operations, and states made at the first step.

# %% solution="mixed_precision_adam"
class MixedPrecisionAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        self.params, self.options = list(params), (lr, *betas, eps, weight_decay)
        self.masters = [param.detach().to(torch.float32, copy=True) for param in self.params]
        self.state = None

    def step(self, grads):
        lr, b1, b2, eps, decay = self.options
        if self.state is None:
            self.state = {"t": 0, "m": [torch.zeros_like(g) for g in grads], "v": [torch.zeros_like(g) for g in grads]}
        self.state["t"] += 1
        t, m, v = self.state["t"], self.state["m"], self.state["v"]
        torch._foreach_mul_(self.masters, 1 - lr * decay)
        torch._foreach_lerp_(m, list(grads), 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, list(grads), list(grads), 1 - b2)
        spread = torch._foreach_sqrt(v)
        torch._foreach_div_(spread, math.sqrt(1 - b2**t))
        torch._foreach_add_(spread, eps)
        torch._foreach_addcdiv_(self.masters, m, spread, -lr / (1 - b1**t))
        for param, master in zip(self.params, self.masters):
            param.data = master.to(bfloat16)
