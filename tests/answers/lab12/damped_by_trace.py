# kind: wrong
# about: lambda from the sum of the diagonal, not its mean.
# loses: calibrated_levels, calibrated_awkward
# says: "calibrated_levels": "calibrated"

# %% edit="calibrated"
# replace
    gram.diagonal().add_(damp * gram.diagonal().mean())
# by
    gram.diagonal().add_(damp * gram.diagonal().sum())
