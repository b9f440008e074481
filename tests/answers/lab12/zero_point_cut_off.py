# kind: wrong
# about: The zero point is cut off, not rounded (U07).
# loses: asymmetric, groups
# says: "asymmetric": "the zero point was cut off"

# %% edit="quantise"
# replace
    zero = torch.zeros_like(divisor) if symmetric else (-bottom / divisor).round().clamp(low, high)
# by
    zero = torch.zeros_like(divisor) if symmetric else (-bottom / divisor).trunc().clamp(low, high)
