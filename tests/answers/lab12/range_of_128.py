# kind: wrong
# about: Symmetric levels scaled by max / 2^(bits-1), as if -128 were used (U01).
# loses: symmetric, channels, groups, awkward, round_trip, int8_values
# says: "symmetric": "the scale is max / 2^(bits-1)"

# %% edit="quantise"
# replace
        scale, bottom = rows.abs().amax(-1) / high, None
# by
        scale, bottom = rows.abs().amax(-1) / (high + 1), None
