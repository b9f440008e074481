# kind: wrong
# about: Summed over the replicas, never divided.
# loses: sync_dp, sync_tp, sync_tied, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_dp": "summed over the 2 replicas of dp but never divided"
# says: "mesh_step_gradients": "summed over the 2 replicas of dp, never divided"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
        if placement.tied:
            other = mesh.ranks("pp")[-1 if stage.first else 0]
            theirs = torch.empty_like(grad)
            works = [dist.isend(grad, other), dist.irecv(theirs, other)]
            for work in works:
                work.wait()
            grad += theirs
        dist.all_reduce(grad, group=mesh.group("dp"))
