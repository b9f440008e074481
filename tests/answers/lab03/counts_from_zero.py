# kind: wrong
# about: The step count is raised at the end: the first correction divides by 0.
# loses: adam_small_updates, adam_values, adam_decay, skipped_step
# says: "adam_small_updates": "MixedPrecisionAdam, small updates, weight"
# says: "adam_values": "the tensor holds NaN or infinity"
# says: "adam_decay": "MixedPrecisionAdam with weight_decay, weight"
# says: "skipped_step": "the tensor holds NaN or infinity"

# %% solution="mixed_precision_adam"
class MixedPrecisionAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        self.params, self.lr, self.betas, self.eps, self.weight_decay = list(params), lr, betas, eps, weight_decay
        self.masters = [param.detach().float() for param in self.params]
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.masters]
        self.steps = 0

    def step(self, grads):
        b1, b2 = self.betas
        for param, w, (m, v), g in zip(self.params, self.masters, self.moments, grads):
            w.mul_(1 - self.lr * self.weight_decay)
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            m_hat, v_hat = m / (1 - b1**self.steps), v / (1 - b2**self.steps)
            w.sub_(self.lr * m_hat / (v_hat.sqrt() + self.eps))
            param.data.copy_(w)
        self.steps += 1
