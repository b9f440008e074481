# kind: wrong
# about: Levels are not clamped where the stored scale is too small.
# loses: awkward
# says: "awkward": "q"

# %% edit="quantise"
# replace
    q = ((x / wide[0]).round() + wide[1]).clamp(low, high)
# by
    q = (x / wide[0]).round() + wide[1]
