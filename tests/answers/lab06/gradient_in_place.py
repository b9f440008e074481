# kind: wrong
# about: Reduces the incoming gradient in place; a residual branch holds the same tensor.
# loses: conjugate_pair
# says: "conjugate_pair": "overwritten"

# %% solution="conjugate"
class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def copy_to(x, group=None):
    return CopyTo.apply(x, group)


def reduce_from(x, group=None):
    return ReduceFrom.apply(x, group)
