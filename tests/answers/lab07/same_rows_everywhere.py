# kind: wrong
# about: All replicas work on the first rows of the batch.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "is wrong"

# %% edit="mesh_step"
# replace
    d, dp = mesh.coordinate("dp"), mesh.size("dp")
# by
    d, dp = 0, mesh.size("dp")
