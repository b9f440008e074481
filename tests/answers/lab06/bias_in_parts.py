# kind: right
# about: Every rank adds bias / p before the sum; the gradients of the copies add up to the dense one.

# %% solution="row_linear"
def row_linear(x, weight, bias, group=None):
    part = None if bias is None else bias / dist.get_world_size(group)
    return reduce_from(F.linear(x, weight, part), group)
