# kind: wrong
# about: The loss is that of the own replica; it is never averaged over dp.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "the loss of step 1"

# %% edit="mesh_step"
# replace
    for axis in ("pp", "dp"):  # other stages bring 0
        dist.all_reduce(loss, group=mesh.group(axis))
    return loss.item() / dp
# by
    for axis in ("pp",):  # other stages bring 0
        dist.all_reduce(loss, group=mesh.group(axis))
    return loss.item()
