# kind: wrong
# about: The backward pass sends in the same direction, with the same sizes.
# loses: exchange_gradients, exchange_values, moe_routing, moe_values, moe_gradients, moe_router_gradient,
#  moe_dropped, moe_traffic, two_steps

# %% edit="exchange"
# replace
        ctx.back = recv, send, group
# by
        ctx.back = send, recv, group
