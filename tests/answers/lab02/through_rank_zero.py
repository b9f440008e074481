# kind: wrong
# about: Reduce to rank 0 and broadcast: right values and total, but rank 0 carries the others.
# loses: average_traffic
# says: "average_traffic": "rank 0 sent"

# %% solution="average_gradients"
def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.reduce(p.grad, 0)
            p.grad /= dist.get_world_size()
            dist.broadcast(p.grad, 0)
