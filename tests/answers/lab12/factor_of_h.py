# kind: wrong
# about: The Cholesky factor of H, not of its inverse.
# loses: calibrated_levels, calibrated_held_out, calibrated_awkward
# says: "calibrated_levels": "calibrated"

# %% edit="calibrated"
# replace
    upper = torch.linalg.cholesky(torch.linalg.inv(gram), upper=True)
# by
    upper = torch.linalg.cholesky(gram, upper=True)
