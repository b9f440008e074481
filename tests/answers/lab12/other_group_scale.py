# kind: wrong
# about: One scale for the whole row where groups have their own.
# loses: calibrated_levels, calibrated_held_out, calibrated_awkward
# says: "calibrated_levels": "calibrated"

# %% edit="calibrated"
# replace
    steps = scale.double().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
# by
    steps = scale.double().amax(1, keepdim=True).expand_as(weight)
