# kind: wrong
# about: Levels of calibrated rounding are not clamped.
# loses: calibrated_levels, calibrated_awkward
# says: "calibrated_levels": "levels were not clamped"

# %% edit="calibrated"
# replace
        q[:, i] = torch.where(step > 0, w[:, i] / step, 0.0).round().clamp(-top, top)
# by
        q[:, i] = torch.where(step > 0, w[:, i] / step, 0.0).round()
