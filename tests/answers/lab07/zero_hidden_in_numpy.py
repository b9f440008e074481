# kind: wrong
# about: Each rank keeps all of Adam's state, in numpy, where living tensors are not counted, and asks no one for anything.
# loses: zero_one_memory
# says: "zero_one_memory": "0 bytes came along dp"

# %% edit="zero_one"
# replace
        self.moments = {key: torch.zeros_like(self.shard) for key in ("exp_avg", "exp_avg_sq")}
# by
        self.moments = {key: torch.zeros_like(self.shard) for key in ("exp_avg", "exp_avg_sq")}
        self.whole = {key: torch.zeros(self.numel).double().numpy().copy() for key in self.moments}

# replace
        grad = self.piece(self.flatten({name: p.grad for name, p in self.parameters.items()}))
        mean, square = self.moments["exp_avg"], self.moments["exp_avg_sq"]
        mean.lerp_(grad, 1 - 0.9)
        square.mul_(0.999).addcmul_(grad, grad, value=1 - 0.999)
# by
        grad = torch.cat([p.grad.reshape(-1) for p in self.parameters.values()]).double().numpy()
        self.whole["exp_avg"] += 0.1 * (grad - self.whole["exp_avg"])
        self.whole["exp_avg_sq"] += 0.001 * (grad * grad - self.whole["exp_avg_sq"])
        mean, square = (torch.from_numpy(self.whole[key]) for key in self.moments)

# replace
        self.shard.addcdiv_(mean, root, value=-self.lr / (1 - 0.9**self.steps))
        for name, value in self.gathered(self.shard).items():
            self.parameters[name].data.copy_(value)
# by
        step = (mean / root * (-self.lr / (1 - 0.9**self.steps))).split([p.numel() for p in self.parameters.values()])
        for parameter, change in zip(self.parameters.values(), step):
            parameter.data += change.view_as(parameter)

# replace
        whole = {key: self.gathered(moment) for key, moment in self.moments.items()}
# by
        whole = {}
        for key, moment in self.whole.items():
            pieces = torch.from_numpy(moment).split([p.numel() for p in self.parameters.values()])
            whole[key] = {n: x.view_as(p) for (n, p), x in zip(self.parameters.items(), pieces)}

# replace
        for key, moment in self.moments.items():
            moment.copy_(self.piece(self.flatten({name: state[f"{name}/{key}"] for name in self.parameters})))
# by
        for key in self.moments:
            flat = torch.cat([state[f"{name}/{key}"].reshape(-1) for name in self.parameters])
            self.whole[key] = flat.double().numpy().copy()
