# kind: wrong
# about: Divides by the number of ranks that used the parameter.
# loses: average_special, average_traffic
# says: "average_special": "wanted"

# %% solution="average_gradients"
def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            users = torch.tensor(float(p.grad is not None))
            dist.all_reduce(users)
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= users.clamp(min=1)
