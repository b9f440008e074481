# kind: wrong
# about: P03: divided by the micro-batches in the loss, and again afterwards.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "divided by the 3 micro-batches twice"

# %% edit="mesh_step"
# replace
    loss = torch.tensor(sum(run_gpipe(stage, mesh, parts, loss_of)), dtype=torch.float64)
# by
    loss = torch.tensor(sum(run_gpipe(stage, mesh, parts, loss_of)), dtype=torch.float64)
    for parameter in stage.parameters():
        parameter.grad /= micro_batches
