# kind: wrong
# about: Leaves lambda out, but for what keeps the inverse finite.
# loses: calibrated_levels, calibrated_awkward
# says: "calibrated_levels": "lambda was left out"

# %% edit="calibrated"
# replace
    gram.diagonal().add_(damp * gram.diagonal().mean())
# by
    gram.diagonal().add_(1e-9 * gram.diagonal().mean())
