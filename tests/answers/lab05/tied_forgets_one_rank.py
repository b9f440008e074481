# kind: wrong
# about: Forgets that both copies may be on one rank as two Parameters.
# loses: tied_gradient
# says: "tied_gradient": "it is still this copy's own part"

# %% edit="sum_tied_gradient"
# replace
    if len(copies) == 2 and copies[0] is not copies[1]:
# by
    if False:
