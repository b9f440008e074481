# kind: wrong
# about: Returns the loss of the last micro-batch only; gradients are right.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches
# says: "run_gradients": "the returned loss is"

# %% edit="run_schedule"
# replace
    return sum(losses) if last % p == rank else None
# by
    return losses[-1] if last % p == rank else None
