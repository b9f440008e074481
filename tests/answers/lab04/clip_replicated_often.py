# kind: wrong
# about: A replicated gradient counts once for every rank (Z10).
# loses: clip_norm
# says: "clip_norm": "replicated gradients were counted once for every rank"

# %% solution="clip_grad_norm"
def clip_grad_norm(sharded, replicated, max_norm):
    sharded = list({id(grad): grad for grad in sharded}.values())
    replicated = list({id(grad): grad for grad in replicated}.values())
    total = torch.tensor([sum(float(grad.square().sum()) for grad in [*sharded, *replicated])], dtype=torch.float64)
    dist.all_reduce(total)
    norm = math.sqrt(total.item())
    if norm > max_norm:
        for grad in [*sharded, *replicated]:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm
