# kind: wrong
# about: Reduces x itself: the caller's tensor is spoilt.
# loses: conjugate_pair
# says: "conjugate_pair": "x after the call"

# %% solution="conjugate"
class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        dist.all_reduce(x, group=group)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def copy_to(x, group=None):
    return CopyTo.apply(x, group)


def reduce_from(x, group=None):
    return ReduceFrom.apply(x, group)
