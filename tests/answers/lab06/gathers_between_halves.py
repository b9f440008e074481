# kind: wrong
# about: Gathers [B, S, 4H] before the activation, as the lecture says: right values, twice the traffic and more.
# loses: mlp_traffic
# says: "mlp_traffic": "Nothing has to be gathered here"

# %% solution="parallel_mlp"
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.rank, ctx.ranks = dist.get_rank(group), dist.get_world_size(group)
        parts = [torch.empty_like(x) for _ in range(ctx.ranks)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(ctx.ranks, -1)[ctx.rank], None


def parallel_mlp(x, up, up_bias, down, down_bias, group=None):
    inner = F.gelu(Gather.apply(column_linear(x, up, up_bias, group), group))
    own = inner.chunk(dist.get_world_size(group), -1)[dist.get_rank(group)]
    return row_linear(own, down, down_bias, group)
