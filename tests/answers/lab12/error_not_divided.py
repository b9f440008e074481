# kind: wrong
# about: The error is not divided by the diagonal of the factor.
# loses: calibrated_levels, calibrated_held_out, calibrated_awkward
# says: "calibrated_levels": "calibrated"

# %% edit="calibrated"
# replace
        error = (w[:, i] - q[:, i] * step) / upper[i, i]
# by
        error = w[:, i] - q[:, i] * step
