# kind: wrong
# about: copy_to all-reduces in the forward pass as well, so the replicated x is p times too large.
# loses: conjugate_pair, column_forward, column_backward, mlp_step, mlp_traffic, attention_step, attention_shared_kv,
#  sequence_step, sequence_copies, sequence_traffic, passed_group
# says: "conjugate_pair": "added up in the forward pass, where copy_to only hands x on"

# %% solution="conjugate"
class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return reduce_from(x.detach(), group)

    @staticmethod
    def backward(ctx, grad):
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


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
