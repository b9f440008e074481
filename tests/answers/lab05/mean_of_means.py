# kind: wrong
# about: Every micro-batch weighs the same, a smaller last one too (P16).
# loses: run_loss_scaling
# says: "run_loss_scaling": "every micro-batch weighs the same"

# %% edit="run_schedule"
# replace
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted
# by
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100) / m
