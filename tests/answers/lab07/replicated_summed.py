# kind: wrong
# about: Whatever is not sharded is summed over tp, also gradients that were whole already: norms and biases are tp times too large.
# loses: sync_tp, sync_tied, sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_tp": "summed over the 2 ranks of tp, which each had the whole gradient already"
# says: "mesh_step_gradients": "is 2 times what is wanted"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind != "sharded":
            dist.all_reduce(grad, group=mesh.group("tp"))
        if placement.tied:
            other = mesh.ranks("pp")[-1 if stage.first else 0]
            theirs = torch.empty_like(grad)
            works = [dist.isend(grad, other), dist.irecv(theirs, other)]
            for work in works:
                work.wait()
            grad += theirs
        dist.all_reduce(grad, group=mesh.group("dp"))
        grad /= mesh.size("dp")

