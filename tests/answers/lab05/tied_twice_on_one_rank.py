# kind: wrong
# about: On one rank it adds although both are one Parameter.
# loses: tied_gradient
# says: "tied_gradient": "one Parameter, counted twice"

# %% edit="sum_tied_gradient"
# replace
    if len(copies) == 2 and copies[0] is not copies[1]:
# by
    if len(copies) == 2:
