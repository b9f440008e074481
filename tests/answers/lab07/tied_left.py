# kind: wrong
# about: P12: the tied embedding's gradient stays on its own stage; the copies drift apart.
# loses: sync_tied, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_tied": "only the gradient of this end's own use"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
        dist.all_reduce(grad, group=mesh.group("dp"))
        grad /= mesh.size("dp")

