# kind: wrong
# about: Numbers are cut off to whole ones.
# loses: symmetric, asymmetric, channels, groups, awkward, round_trip, int8_values
# says: "symmetric": "cut off to whole ones, not rounded"

# %% edit="quantise"
# replace
    q = ((x / wide[0]).round() + wide[1]).clamp(low, high)
# by
    q = ((x / wide[0]).trunc() + wide[1]).clamp(low, high)
