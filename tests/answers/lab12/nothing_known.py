# kind: wrong
# about: x that is all 0 ends in an error.
# loses: calibrated_awkward
# says: "calibrated_awkward": "singular"

# %% edit="calibrated"
# replace
    if not gram.diagonal().any():
        gram = torch.eye(len(gram), dtype=torch.float64)
# by
