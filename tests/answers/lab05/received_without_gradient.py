# kind: wrong
# about: The received activation does not require a gradient, so there is none to send back.
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches, run_messages, run_memory
# says: "run_gradients": "NoneType"

# %% edit="run_schedule"
# replace
        x = inputs[k] if stage == 0 else take("F", stage, k, stage - 1).requires_grad_()
# by
        x = inputs[k] if stage == 0 else take("F", stage, k, stage - 1)
