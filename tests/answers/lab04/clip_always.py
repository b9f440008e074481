# kind: wrong
# about: Scales up what is below max_norm.
# loses: clip_norm, clip_step

# %% solution="clip_grad_norm"
def clip_grad_norm(sharded, replicated, max_norm):
    sharded = list({id(grad): grad for grad in sharded}.values())
    replicated = list({id(grad): grad for grad in replicated}.values())
    total = torch.tensor([sum(float(grad.square().sum()) for grad in sharded)], dtype=torch.float64)
    dist.all_reduce(total)
    norm = math.sqrt(total.item() + sum(float(grad.square().sum()) for grad in replicated))
    if norm:
        for grad in [*sharded, *replicated]:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm
