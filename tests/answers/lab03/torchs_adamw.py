# kind: wrong
# about: Wraps torch.optim.AdamW around the masters.
# loses: adam_bytes
# says: "adam_bytes": "MixedPrecisionAdam ran code of torch/optim/adam.py; write it yourself, without"

# %% solution="mixed_precision_adam"
class MixedPrecisionAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        self.params = list(params)
        self.masters = [torch.nn.Parameter(param.detach().float()) for param in self.params]
        self.inner = torch.optim.AdamW(self.masters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def step(self, grads):
        for master, grad in zip(self.masters, grads):
            master.grad = grad
        self.inner.step()
        self.inner.zero_grad()
        for param, master in zip(self.params, self.masters):
            param.data.copy_(master.data)
