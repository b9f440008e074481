# kind: wrong
# about: Splits the rows that came in by expert, but they came rank by rank (E05).
# loses: moe_routing, moe_values, moe_gradients, moe_router_gradient, moe_dropped, two_steps
# says: "moe_values": "they come rank by rank"
# says: "moe_routing": "went through expert"

# %% edit="moe_layer"
# replace
    parts = rows[order].split(recv.sum(0).tolist())
# by
    parts = rows.split(recv.sum(0).tolist())
# replace
    results = exchange(done[order.argsort()], in_sizes, out_sizes, group)
# by
    results = exchange(done, in_sizes, out_sizes, group)
