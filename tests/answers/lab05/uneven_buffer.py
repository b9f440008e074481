# kind: wrong
# about: The receive buffer has B // m rows, whatever the micro-batch has.
# loses: run_loss_scaling, run_messages

# %% edit="run_schedule"
# replace
        buffer = torch.empty(*inputs[k].shape, hidden)
# by
        buffer = torch.empty(len(tokens) // m, tokens.shape[1], hidden)
