# kind: wrong
# about: The range of an asymmetric tensor is its own, without 0 (U06).
# loses: asymmetric, awkward
# says: "asymmetric": "0 was not taken into the range"

# %% edit="quantise"
# replace
        bottom = rows.amin(-1).clamp(max=0)
        scale = (rows.amax(-1).clamp(min=0) - bottom) / high
# by
        bottom = rows.amin(-1)
        scale = (rows.amax(-1) - bottom) / high
