# kind: wrong
# about: Adds up the micro-batches' mean losses and never divides by m.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches
# says: "run_gradients": "never divided by m"
# says: "run_loss_scaling": "the means of the micro-batches were added up"

# %% edit="run_schedule"
# replace
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted
# by
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100)
