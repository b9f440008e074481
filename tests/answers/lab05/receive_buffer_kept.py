# kind: wrong
# about: Keeps receive buffers from call to call: their .grad adds up over batches (P09).
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_two_batches
# says: "run_two_batches": "The batch before was right, so something was kept from it"

# %% edit="run_schedule"
# replace
def run_schedule(
# by
kept = {}


def run_schedule(

# replace
        x = inputs[k] if stage == 0 else take("F", stage, k, stage - 1).requires_grad_()
# by
        x = inputs[k]
        if stage > 0:
            x = kept.setdefault((stage, k, len(inputs[k])), torch.empty(*inputs[k].shape, hidden, requires_grad=True))
            x.data.copy_(take("F", stage, k, stage - 1))
