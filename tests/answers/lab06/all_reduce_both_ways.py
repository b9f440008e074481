# kind: wrong
# about: All-reduce in the backward pass of reduce_from too: p times the gradient.
# loses: conjugate_pair, row_step, mlp_step, mlp_traffic, attention_step, attention_shared_kv, embedding_step,
#  cross_entropy_gradients, vocab_traffic, passed_group
# says: "conjugate_pair": "2 times what is wanted: it was added up over the 2 ranks once too often"
# says: "row_step": "added up over the 2 ranks once too often"
# says: "cross_entropy_gradients": "once too often"

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
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, grad):
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def copy_to(x, group=None):
    return CopyTo.apply(x, group)


def reduce_from(x, group=None):
    return ReduceFrom.apply(x, group)
