# kind: wrong
# about: Adds up the router's gradient over the ranks in the layer, and part 5 adds it up again.
# loses: moe_router_gradient, moe_dropped, moe_traffic, two_steps
# says: "moe_router_gradient": "it is summed over the ranks already"

# %% edit="moe_layer"
# replace
    ids, weights = route(x @ router.t(), k, renormalise)
# by
    def add_up(grad):
        total = grad.clone()
        dist.all_reduce(total, group=group)
        return total

    router = router.view_as(router)
    router.register_hook(add_up)
    ids, weights = route(x @ router.t(), k, renormalise)
