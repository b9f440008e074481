# kind: wrong
# about: A group with scale 0 is divided by it.
# loses: calibrated_awkward
# says: "calibrated_awkward": "calibrated"

# %% edit="calibrated"
# replace
        q[:, i] = torch.where(step > 0, w[:, i] / step, 0.0).round().clamp(-top, top)
# by
        q[:, i] = (w[:, i] / step).round().clamp(-top, top)
