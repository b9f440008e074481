# kind: right
# about: copy_to by a hook on the gradient, reduce_from by adding a detached difference.

# %% solution="conjugate"
def copy_to(x, group=None):
    def add_up(grad):
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(add_up)
    return y


def reduce_from(x, group=None):
    total = x.detach().contiguous().clone()
    dist.all_reduce(total, group=group)
    return x + (total - x.detach())
