# kind: wrong
# about: Z15 in small: the other end's gradient of one replica is added after the mean over dp was taken.
# loses: sync_tied, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_tied": "is wrong"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
        theirs = torch.zeros_like(grad)
        if placement.tied:
            other = mesh.ranks("pp")[-1 if stage.first else 0]
            works = [dist.isend(grad, other), dist.irecv(theirs, other)]
            for work in works:
                work.wait()
        dist.all_reduce(grad, group=mesh.group("dp"))
        grad /= mesh.size("dp")
        grad += theirs
