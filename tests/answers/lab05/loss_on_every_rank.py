# kind: wrong
# about: Returns 0.0 where None is asked for.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches
# says: "run_gradients": "only the rank of the last stage returns the loss"

# %% edit="run_schedule"
# replace
    return sum(losses) if last % p == rank else None
# by
    return float(sum(losses))
