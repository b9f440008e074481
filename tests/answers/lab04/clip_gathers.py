# kind: wrong
# about: Gathers whole gradients to take their norm.
# loses: clip_norm, clip_step
# says: "clip_norm": "one number, its sum of squares, is enough"

# %% solution="clip_grad_norm"
def clip_grad_norm(sharded, replicated, max_norm):
    sharded = list({id(grad): grad for grad in sharded}.values())
    replicated = list({id(grad): grad for grad in replicated}.values())
    mine = torch.zeros(4 * len(sharded))
    for k, grad in enumerate(sharded):
        mine[4 * k : 4 * k + len(grad)] = grad
    whole = torch.empty(len(mine) * dist.get_world_size())
    dist.all_gather_single(whole, mine)
    total = whole.square().sum()
    norm = math.sqrt(total.item() + sum(float(grad.square().sum()) for grad in replicated))
    if norm > max_norm:
        for grad in [*sharded, *replicated]:
            grad.mul_(max_norm / (norm + 1e-6))
    return norm
