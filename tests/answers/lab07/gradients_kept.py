# kind: wrong
# about: Gradients of the step before are not cleared.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "gradient used in step 2"

# %% edit="mesh_step"
# replace
    for parameter in stage.parameters():
        parameter.grad = None
# by
