# kind: wrong
# about: The weights that multiply the results carry no gradient: the loss is right (E09).
# loses: moe_gradients, moe_router_gradient, moe_dropped, two_steps
# says: "moe_router_gradient": "the weights that multiply the results carry no gradient"

# %% edit="moe_layer"
# replace
    ids, weights = route(x @ router.t(), k, renormalise)
# by
    with torch.no_grad():
        ids, weights = route(x @ router.t(), k, renormalise)
