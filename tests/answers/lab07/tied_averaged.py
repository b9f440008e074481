# kind: wrong
# about: The tied gradient is averaged over the two ends; they are shares of one gradient.
# loses: sync_tied, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_tied": "divided by 2; the gradients of both ends add up"

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
            grad /= 2
        dist.all_reduce(grad, group=mesh.group("dp"))
        grad /= mesh.size("dp")

