# kind: wrong
# about: Clears the gradients before each micro-batch's backward.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches
# says: "run_gradients": "only the last micro-batch's part is there"

# %% edit="run_schedule"
# replace
        x, y = held.pop((stage, k))
# by
        x, y = held.pop((stage, k))
        stages[stage].zero_grad()
