# kind: wrong
# about: Divides the experts' gradients by the ranks, as for data parallelism (E06).
# loses: moe_gradients, moe_dropped, two_steps
# says: "moe_gradients": "the rows of all ranks are in it already"

# %% edit="moe_layer"
# replace
    ids, weights = route(x @ router.t(), k, renormalise)
# by
    experts = {name: value.view_as(value) for name, value in experts.items()}
    for value in experts.values():
        value.register_hook(lambda grad: grad / dist.get_world_size(group))
    ids, weights = route(x @ router.t(), k, renormalise)
