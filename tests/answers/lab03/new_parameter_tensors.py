# kind: wrong
# about: Puts new tensors into its list; the model keeps the old ones.
# loses: adam_small_updates, adam_values, adam_decay, adam_bytes, skipped_step
# says: "adam_small_updates": "it must be added to an fp32 master"
# says: "adam_values": "must get the new master"
# says: "adam_decay": "there is no decay; it belongs on the fp32 master"
# says: "adam_bytes": "14.00 bytes a parameter"
# says: "skipped_step": "the tensor is exactly"

# %% solution="mixed_precision_adam"
class MixedPrecisionAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        self.params, self.lr, self.betas, self.eps, self.weight_decay = list(params), lr, betas, eps, weight_decay
        self.masters = [param.detach().float() for param in self.params]
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.masters]
        self.steps = 0

    def step(self, grads):
        self.steps += 1
        b1, b2 = self.betas
        for i, (w, (m, v), g) in enumerate(zip(self.masters, self.moments, grads)):
            w.mul_(1 - self.lr * self.weight_decay)
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            m_hat, v_hat = m / (1 - b1**self.steps), v / (1 - b2**self.steps)
            w.sub_(self.lr * m_hat / (v_hat.sqrt() + self.eps))
            self.params[i] = w.to(bfloat16)
