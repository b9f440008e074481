# kind: wrong
# about: One send buffer a stage, overwritten by the next micro-batch while the message is still on its way (C11).
# loses: run_gradients, run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches
# says: "run_gradients": "gradients of rank"
# says: "run_two_batches": "gradients of rank"

# %% edit="run_schedule"
# replace
    losses = []
# by
    losses = []
    outgoing = {}

# replace
            tensor = tensor.contiguous()
# by
            key = op, stage, tensor.shape
            tensor = outgoing.setdefault(key, torch.empty_like(tensor)).copy_(tensor)
