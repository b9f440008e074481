# kind: right
# about: One flat fp32 vector for all masters, and one for each moment.

# %% solution="mixed_precision_adam"
class MixedPrecisionAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        self.params, self.lr, self.betas, self.eps, self.weight_decay = list(params), lr, betas, eps, weight_decay
        self.sizes = [param.numel() for param in self.params]
        self.master = torch.cat([param.detach().float().reshape(-1) for param in self.params])
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self.t = 0

    @torch.no_grad()
    def step(self, grads):
        self.t += 1
        g = torch.cat([grad.reshape(-1) for grad in grads])
        self.m += (g - self.m) * (1 - self.betas[0])
        self.v += (g * g - self.v) * (1 - self.betas[1])
        direction = (self.m / (1 - self.betas[0] ** self.t)) / ((self.v / (1 - self.betas[1] ** self.t)).sqrt() + self.eps)
        self.master -= self.lr * (direction + self.weight_decay * self.master)
        for param, part in zip(self.params, self.master.split(self.sizes)):
            param.copy_(part.view_as(param))
