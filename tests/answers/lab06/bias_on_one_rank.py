# kind: right
# about: Only rank 0 adds the bias, before the sum.

# %% solution="row_linear"
def row_linear(x, weight, bias, group=None):
    return reduce_from(F.linear(x, weight, bias if dist.get_rank(group) == 0 else None), group)
