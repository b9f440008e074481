# kind: wrong
# about: Joins and cuts along dim 0, as the collectives do: wrong as soon as B > 1.
# loses: sequence_step
# says: "sequence_step": "cut or joined along dim 0"

# %% solution="sequence_parallel"
def joined_tokens(x, group):
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts).view(x.shape[0], -1, x.shape[2])


def summed_tokens(x, group):
    own = torch.empty_like(x.chunk(dist.get_world_size(group), dim=1)[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_single(own.view(-1), x.contiguous().view(-1), group=group)
    return own


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return joined_tokens(x, group)

    @staticmethod
    def backward(ctx, grad):
        return summed_tokens(grad, ctx.group), None


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return summed_tokens(x, group)

    @staticmethod
    def backward(ctx, grad):
        return joined_tokens(grad, ctx.group), None


def gather_sequence(x, group=None):
    return GatherSequence.apply(x, group)


def scatter_sequence(x, group=None):
    return ScatterSequence.apply(x, group)


def sequence_mlp(x, norm_weight, norm_bias, up, up_bias, down, down_bias, group=None):
    norm_weight, norm_bias, down_bias = (copy_to(p, group) for p in (norm_weight, norm_bias, down_bias))
    normed = F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias)
    inner = F.gelu(F.linear(gather_sequence(normed, group), up, up_bias))
    return x + scatter_sequence(F.linear(inner, down), group) + down_bias
