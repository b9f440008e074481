# kind: right
# about: The feed-forward without the linear layers of part 1.

# %% solution="parallel_mlp"
def parallel_mlp(x, up, up_bias, down, down_bias, group=None):
    inner = F.gelu(copy_to(x, group) @ up.t() + up_bias)
    return down_bias + reduce_from(inner @ down.t(), group)
