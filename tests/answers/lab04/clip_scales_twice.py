# kind: wrong
# about: The norm is right, but a tied gradient is scaled once for each of its names.
# loses: clip_norm
# says: "clip_norm": "scaled twice"

# %% solution="clip_grad_norm"
def clip_grad_norm(sharded, replicated, max_norm):
    every = [*sharded, *replicated]
    sharded = list({id(grad): grad for grad in sharded}.values())
    replicated = list({id(grad): grad for grad in replicated}.values())
    total = torch.tensor([sum(float(grad.square().sum()) for grad in sharded)], dtype=torch.float64)
    dist.all_reduce(total)
    norm = math.sqrt(total.item() + sum(float(grad.square().sum()) for grad in replicated))
    if norm > max_norm:
        for grad in every:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm
