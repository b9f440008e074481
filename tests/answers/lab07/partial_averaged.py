# kind: wrong
# about: T12: partial gradients are averaged over tp, where their shares add up.
# loses: sync_tp, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_tp": "divided by the 2 ranks of tp; their shares add up"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
            grad /= mesh.size("tp")
        if placement.tied:
            other = mesh.ranks("pp")[-1 if stage.first else 0]
            theirs = torch.empty_like(grad)
            works = [dist.isend(grad, other), dist.irecv(theirs, other)]
            for work in works:
                work.wait()
            grad += theirs
        dist.all_reduce(grad, group=mesh.group("dp"))
        grad /= mesh.size("dp")

