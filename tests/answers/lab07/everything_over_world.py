# kind: wrong
# about: All gradients are averaged over the whole world, as in plain data parallelism: other tp ranks hold other parameters.
# loses: sync_dp, sync_tp, sync_tied, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_dp": "sharded gradients"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if not placement.tied or mesh.size("pp") == 2:
            dist.all_reduce(grad)
            grad /= dist.get_world_size()
