# kind: wrong
# about: Starts the backward of a stage from ones; what came back is received and not used.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches

# %% edit="run_schedule"
# replace
        y.backward(None if stage == last else take("B", stage, k, stage + 1))
# by
        if stage != last:
            take("B", stage, k, stage + 1)
        y.backward(torch.ones_like(y))
