# kind: wrong
# about: max_norm is ignored.
# loses: mesh_step_losses
# says: "mesh_step_losses": "The gradients were not clipped"

# %% edit="mesh_step"
# replace
    if max_norm is not None:
# by
    if False:
