# kind: wrong
# about: Plain Adam on every rank: right values, nothing is sharded.
# loses: zero_one_memory
# says: "zero_one_memory": "this is the state of all elements"

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, parameters, group, lr, eps=1e-8):
        self.parameters, self.lr, self.eps, self.steps = dict(parameters), lr, eps, 0
        self.m = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.v = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    def step(self):
        self.steps += 1
        for name, p in self.parameters.items():
            self.m[name].lerp_(p.grad, 0.1)
            self.v[name].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            root = (self.v[name] / (1 - 0.999**self.steps)).sqrt() + self.eps
            p.data.addcdiv_(self.m[name], root, value=-self.lr / (1 - 0.9**self.steps))

    def state(self):
        state = {f"{name}/exp_avg": m.clone() for name, m in self.m.items()}
        state |= {f"{name}/exp_avg_sq": v.clone() for name, v in self.v.items()}
        return state | {"step": torch.tensor(float(self.steps))}

    def load_state(self, state):
        self.steps = int(state["step"])
        for name in self.parameters:
            self.m[name].copy_(state[f"{name}/exp_avg"])
            self.v[name].copy_(state[f"{name}/exp_avg_sq"])
