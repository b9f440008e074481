# kind: wrong
# about: Gradients of the norm and the bias stay those of a rank's own tokens (T12).
# loses: sequence_copies, passed_group
# says: "sequence_copies": "never added up over the group"

# %% solution="sequence_parallel"
def joined_tokens(x, group):
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=1)


def summed_tokens(x, group):
    parts = x.chunk(dist.get_world_size(group), dim=1)
    own = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_single(own, torch.cat(parts), group=group)
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
    normed = F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias)
    inner = F.gelu(F.linear(gather_sequence(normed, group), up, up_bias))
    return x + scatter_sequence(F.linear(inner, down), group) + down_bias
