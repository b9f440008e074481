# kind: wrong
# about: Only the first stage gets the sum; the last keeps its own part.
# loses: tied_gradient
# says: "tied_gradient": "it is still this copy's own part"

# %% edit="sum_tied_gradient"
# replace
    weight.grad += other
# by
    if rank == 0:
        weight.grad += other
