# kind: wrong
# about: Column linear without the all-reduce of dX: output and own weight gradients are right (T04).
# loses: column_backward, mlp_step, mlp_traffic, attention_step, attention_shared_kv, passed_group
# says: "column_backward": "never added up in the backward pass"
# says: "mlp_step": "grad of x"

# %% solution="column_linear"
def column_linear(x, weight, bias, group=None):
    return F.linear(x, weight, bias)
