# kind: wrong
# about: Sends the stage's output gradient back instead of its input's.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches

# %% edit="run_schedule"
# replace
        y.backward(None if stage == last else take("B", stage, k, stage + 1))
# by
        grad = None if stage == last else take("B", stage, k, stage + 1)
        y.backward(grad)

# replace
            post("B", stage - 1, k, x.grad)
# by
            post("B", stage - 1, k, x.grad if grad is None else grad)
