# kind: wrong
# about: Weights micro-batches by rows, not by counted targets.
# loses: run_loss_scaling
# says: "run_loss_scaling": "weighted by their rows"

# %% edit="run_schedule"
# replace
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted
# by
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100) * len(wanted[k]) / len(targets)
