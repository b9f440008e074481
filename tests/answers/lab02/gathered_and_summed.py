# kind: wrong
# about: all_gather and a local sum: right values, p/2 times the bytes.
# loses: average_traffic
# says: "average_traffic": "1.5 times the"

# %% solution="average_gradients"
def average_gradients(model):
    world = dist.get_world_size()
    for p in model.parameters():
        if p.requires_grad:
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            everyone = [torch.empty_like(grad) for _ in range(world)]
            dist.all_gather(everyone, grad)
            p.grad = sum(everyone) / world
