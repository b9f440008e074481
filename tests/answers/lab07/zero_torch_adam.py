# kind: right
# about: torch.optim.Adam on the own shard.

# %% solution="zero_one"
class ZeroOne:
    def __init__(self, parameters, group, lr, eps=1e-8):
        self.parameters, self.group = dict(parameters), group
        self.count, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.sizes = [p.numel() for p in self.parameters.values()]
        self.each = math.ceil(sum(self.sizes) / self.count)
        self.mine = nn.Parameter(self.cut(p.detach() for p in self.parameters.values()))
        self.adam = torch.optim.Adam([self.mine], lr=lr, eps=eps, foreach=False)

    def cut(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        flat = torch.cat([flat, flat.new_zeros(self.each * self.count - flat.numel())])
        return flat.view(self.count, self.each)[self.rank].clone()

    def everyone(self, piece):
        rows = [torch.empty_like(piece) for _ in range(self.count)]
        dist.all_gather(rows, piece.detach(), group=self.group)
        flat = torch.cat(rows)[: sum(self.sizes)]
        return [part.view_as(p) for part, p in zip(flat.split(self.sizes), self.parameters.values())]

    def step(self):
        self.mine.grad = self.cut(p.grad for p in self.parameters.values())
        self.adam.step()
        self.mine.grad = None
        with torch.no_grad():
            for p, new in zip(self.parameters.values(), self.everyone(self.mine)):
                p.copy_(new)

    def state(self):
        state = self.adam.state[self.mine]
        result = {"step": state["step"].clone()}
        for key in ("exp_avg", "exp_avg_sq"):
            for name, whole in zip(self.parameters, self.everyone(state[key])):
                result[f"{name}/{key}"] = whole.clone()
        return result

    def load_state(self, state):
        self.mine.data.copy_(self.cut(p.detach() for p in self.parameters.values()))
        kept = {key: self.cut(state[f"{name}/{key}"] for name in self.parameters) for key in ("exp_avg", "exp_avg_sq")}
        self.adam.state[self.mine] = {"step": state["step"].clone().float(), **kept}
