# kind: wrong
# about: Divides the sum by all targets, those of -100 too.
# loses: run_loss_scaling
# says: "run_loss_scaling": "those of -100 do not count"

# %% edit="run_schedule"
# replace
    counted = (targets != -100).sum()
# by
    counted = targets.numel()
