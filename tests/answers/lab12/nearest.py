# kind: wrong
# about: Rounds to nearest; nothing is made up for.
# loses: calibrated_levels, calibrated_held_out, calibrated_awkward
# says: "calibrated_levels": "this is rounding to nearest"
# says: "calibrated_held_out": "rounding to nearest by"

# %% edit="calibrated"
# replace
        error = (w[:, i] - q[:, i] * step) / upper[i, i]
        w[:, i + 1 :] -= error[:, None] * upper[i, i + 1 :]
# by
