# kind: wrong
# about: Averages both parts.
# loses: tied_gradient
# says: "tied_gradient": "is 1/2 of what is wanted: a mean; a sum is wanted"

# %% edit="sum_tied_gradient"
# replace
    weight.grad += other
# by
    weight.grad.add_(other).div_(2)
