# kind: wrong
# about: Every rank adds the whole bias before the all-reduce: p times in it (T01).
# loses: row_step, mlp_step, mlp_traffic, attention_step, attention_shared_kv, passed_group
# says: "row_step": "the bias is in it 2 times"
# says: "mlp_step": "down_bias is in it 2 times"

# %% solution="row_linear"
def row_linear(x, weight, bias, group=None):
    return reduce_from(F.linear(x, weight, bias), group)
