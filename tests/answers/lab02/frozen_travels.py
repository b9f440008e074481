# kind: wrong
# about: Frozen parameters get zeros for a gradient, which travel too.
# loses: average_traffic
# says: "average_traffic": "or something that has no gradient"

# %% solution="average_gradients"
def average_gradients(model):
    for p in model.parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(grad)
        if p.requires_grad:
            p.grad = grad / dist.get_world_size()
