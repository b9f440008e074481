# kind: wrong
# about: A tied gradient is counted once for each of its names.
# loses: clip_norm
# says: "clip_norm": "a tied gradient was counted twice"

# %% solution="clip_grad_norm"
def clip_grad_norm(sharded, replicated, max_norm):
    total = torch.tensor([sum(float(grad.square().sum()) for grad in sharded)], dtype=torch.float64)
    dist.all_reduce(total)
    norm = math.sqrt(total.item() + sum(float(grad.square().sum()) for grad in replicated))
    if norm > max_norm:
        for grad in [*sharded, *replicated]:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm
