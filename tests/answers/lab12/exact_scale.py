# kind: wrong
# about: Divides by the scale before it is rounded for storage.
# loses: awkward
# says: "awkward": "before it was stored"

# %% edit="quantise"
# replace
    scale = scale.to(scale_dtype)
    divisor = torch.where(scale == 0, torch.inf, scale.float())  # by infinity: 0
# by
    divisor = torch.where(scale == 0, torch.inf, scale)
    scale = scale.to(scale_dtype)
