# kind: wrong
# about: Divides by the count of the whole batch and by m again (P03, P04).
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches
# says: "run_gradients": "is 1/2 of what is wanted: divided by m, though it is a mean over the whole batch already"

# %% edit="run_schedule"
# replace
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted
# by
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted / m
