# kind: wrong
# about: Gradients are clipped before they are put together: each replica clips its own.
# loses: mesh_step_losses
# says: "mesh_step_losses": "Step 1 is right, so the update is not"

# %% edit="mesh_step"
# replace
    sync_gradients(stage, mesh)
# by

# replace
            parameter.grad *= factor
# by
            parameter.grad *= factor
    sync_gradients(stage, mesh)
