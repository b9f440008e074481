# kind: wrong
# about: Does nothing: the copies drift apart (P12).
# loses: tied_gradient
# says: "tied_gradient": "it is still this copy's own part; the other was not added"

# %% solution="sum_tied_gradient"
def sum_tied_gradient(stages, last):
    return
