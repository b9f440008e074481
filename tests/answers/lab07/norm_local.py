# kind: wrong
# about: Z09: each rank's own norm.
# loses: mesh_norm_tp, mesh_norm_pp, mesh_step_losses
# says: "mesh_norm_tp": "a norm of rank 0's part alone"

# %% solution="mesh_norm"
def mesh_norm(stage, mesh):
    return torch.nn.utils.get_total_norm([p.grad for p in stage.parameters()]).item()
