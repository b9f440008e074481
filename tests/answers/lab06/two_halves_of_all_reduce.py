# kind: right
# about: All-reduce as a reduce-scatter and an all-gather of padded pieces.

# %% solution="conjugate"
def added_up(x, group):
    ranks = dist.get_world_size(group)
    flat = x.contiguous().flatten()
    flat = F.pad(flat, (0, -flat.numel() % ranks))
    own = torch.empty(flat.numel() // ranks, dtype=x.dtype)
    dist.reduce_scatter_single(own, flat, group=group)
    whole = torch.empty_like(flat)
    dist.all_gather_single(whole, own, group=group)
    return whole[: x.numel()].view(x.shape)


class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return added_up(grad, ctx.group), None


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return added_up(x, group)

    @staticmethod
    def backward(ctx, grad):
        return grad.clone(), None


def copy_to(x, group=None):
    return CopyTo.apply(x, group)


def reduce_from(x, group=None):
    return ReduceFrom.apply(x, group)
