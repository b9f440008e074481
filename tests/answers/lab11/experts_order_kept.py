# kind: wrong
# about: Sends the results back in the order of the experts, not in that in which the rows came (E04).
# loses: moe_routing, moe_values, moe_gradients, moe_router_gradient, moe_dropped, two_steps

# %% edit="moe_layer"
# replace
    results = exchange(done[order.argsort()], in_sizes, out_sizes, group)
# by
    results = exchange(done, in_sizes, out_sizes, group)
