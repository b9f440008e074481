# kind: wrong
# about: Brings all experts to all tokens: right values, and the weights travel in place of the rows.
# loses: moe_traffic, moe_work
# says: "moe_traffic": "no row and no weight has to go to all ranks"

# %% solution="moe_layer"
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own, group):
        ctx.group = group
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, own.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total.chunk(dist.get_world_size(ctx.group))[dist.get_rank(ctx.group)], None


def moe_layer(x, router, experts, k, capacity=None, renormalise=True, group=None):
    ids, weights = route(x @ router.t(), k, renormalise)
    if capacity is not None:
        ids = drop_over_capacity(ids, len(router), capacity, group)
    whole = {name: Gather.apply(value, group) for name, value in experts.items()}
    y = torch.zeros_like(x)
    for e in range(len(router)):
        tokens, places = (ids == e).nonzero(as_tuple=True)
        result = expert(x[tokens], *(whole[name][e] for name in EXPERT))
        y = y.index_add(0, tokens, result * weights[tokens, places, None])
    return y
