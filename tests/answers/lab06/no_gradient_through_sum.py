# kind: wrong
# about: The all-reduce runs under no_grad: right forward, no gradient at all (T08).
# loses: conjugate_pair, row_step, mlp_step, mlp_traffic, attention_step, attention_shared_kv, embedding_step,
#  cross_entropy_gradients, passed_group
# says: "conjugate_pair": "None"

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



def copy_to(x, group=None):
    return CopyTo.apply(x, group)


def reduce_from(x, group=None):
    with torch.no_grad():
        total = x.clone()
        dist.all_reduce(total, group=group)
    return total
