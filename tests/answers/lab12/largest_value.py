# kind: wrong
# about: The largest value in place of the largest absolute value.
# loses: symmetric, channels, groups, awkward, round_trip, int8_values
# says: "symmetric": "not from the largest absolute value"

# %% edit="quantise"
# replace
        scale, bottom = rows.abs().amax(-1) / high, None
# by
        scale, bottom = rows.amax(-1) / high, None
