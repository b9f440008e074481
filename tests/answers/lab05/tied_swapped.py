# kind: wrong
# about: The parts are exchanged and not added.
# loses: tied_gradient
# says: "tied_gradient": "it is the other copy's part; its own is gone"

# %% edit="sum_tied_gradient"
# replace
    weight.grad += other
# by
    weight.grad.copy_(other)
