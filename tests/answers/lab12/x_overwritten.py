# kind: wrong
# about: x is divided in place.
# loses: symmetric, asymmetric, channels, groups, awkward
# says: "symmetric": "quantise"

# %% edit="quantise"
# replace
    q = ((x / wide[0]).round() + wide[1]).clamp(low, high)
# by
    q = (x.div_(wide[0]).round() + wide[1]).clamp(low, high)
