# kind: wrong
# about: Partial gradients are not summed over tp (T16): each rank updates k_proj and v_proj with its own share.
# loses: sync_tp, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_tp": "only this tp rank's share: partial gradients are summed over tp"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.tied:
            other = mesh.ranks("pp")[-1 if stage.first else 0]
            theirs = torch.empty_like(grad)
            works = [dist.isend(grad, other), dist.irecv(theirs, other)]
            for work in works:
                work.wait()
            grad += theirs
        dist.all_reduce(grad, group=mesh.group("dp"))
        grad /= mesh.size("dp")

