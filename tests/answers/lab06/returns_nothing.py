# kind: wrong
# about: Returns what dist.all_reduce returns: None (T02).
# loses: row_step, mlp_step, mlp_traffic, attention_step, attention_shared_kv, passed_group
# says: "row_step": "\"out\" is None"

# %% solution="row_linear"
def row_linear(x, weight, bias, group=None):
    y = F.linear(x, weight)
    if dist.get_rank(group) == 0 and bias is not None:
        y = y + bias
    return dist.all_reduce(y.detach(), group=group)
