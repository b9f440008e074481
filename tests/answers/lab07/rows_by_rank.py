# kind: wrong
# about: Rows are dealt out by rank, not by coordinate: ranks of one replica work on different data (T17).
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "is wrong"

# %% edit="mesh_step"
# replace
    d, dp = mesh.coordinate("dp"), mesh.size("dp")
# by
    d, dp = dist.get_rank() % mesh.size("dp"), mesh.size("dp")
