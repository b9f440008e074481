# kind: wrong
# about: Right values, but replicated gradients travel along tp as well, to be averaged there.
# loses: sync_traffic
# says: "sync_traffic": "only partial gradients travel along tp"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    for name, parameter in stage.named_parameters():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
        if placement.kind == "replicated" and mesh.size("tp") > 1:
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

