# kind: wrong
# about: A scale of 0 is divided by (U04).
# loses: awkward
# says: "awkward": "q"

# %% edit="quantise"
# replace
    divisor = torch.where(scale == 0, torch.inf, scale.float())  # by infinity: 0
# by
    divisor = scale.float()
