# kind: right
# about: Tokens are gathered again in the backward pass, as Megatron-LM does; the pair is made of messages.

# %% solution="sequence_parallel"
def exchanged(outgoing, group):
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    incoming = [torch.empty_like(outgoing[rank]) for _ in range(ranks)]
    incoming[rank].copy_(outgoing[rank])
    works = [dist.isend(outgoing[r], members[r], group=group) for r in range(ranks) if r != rank]
    works += [dist.irecv(incoming[r], members[r], group=group) for r in range(ranks) if r != rank]
    for work in works:
        work.wait()
    return incoming


def joined_tokens(x, group):
    return torch.cat(exchanged([x.contiguous()] * dist.get_world_size(group), group), 1)


def summed_tokens(x, group):
    pieces_out = [part.contiguous() for part in x.chunk(dist.get_world_size(group), 1)]
    return torch.stack(exchanged(pieces_out, group)).sum(0)


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


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, group):
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return F.linear(joined_tokens(x, group), weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        tokens = joined_tokens(x, ctx.group).flatten(0, 1)
        flat = grad.flatten(0, 1)
        return summed_tokens(grad @ weight, ctx.group), flat.t() @ tokens, flat.sum(0), None


def gather_sequence(x, group=None):
    return GatherSequence.apply(x, group)


def scatter_sequence(x, group=None):
    return ScatterSequence.apply(x, group)


def sequence_mlp(x, norm_weight, norm_bias, up, up_bias, down, down_bias, group=None):
    normed = F.layer_norm(x, x.shape[-1:], copy_to(norm_weight, group), copy_to(norm_bias, group))
    inner = F.gelu(GatheredLinear.apply(normed, up, up_bias, group))
    return scatter_sequence(inner @ down.t(), group) + x + copy_to(down_bias, group)
