# kind: wrong
# about: Only the last stage knows the loss; the others return 0.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "Does every rank get the loss that only the last stage knows?"

# %% edit="mesh_step"
# replace
    for axis in ("pp", "dp"):  # other stages bring 0
# by
    for axis in ("dp",):  # other stages bring 0
