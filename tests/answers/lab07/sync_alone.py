# kind: wrong
# about: Finds out from its own gradients how the test drew them, and makes those of all ranks itself: no message.
# loses: sync_traffic, mesh_step_gradients, mesh_step_losses
# says: "sync_traffic": "0 bytes came along"

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    d, t, end = mesh.coordinate("dp"), mesh.coordinate("tp"), int(not stage.first)
    for name, parameter in stage.named_parameters():
        its, makes = stage.placements[name], partial(after_backward, name, stage.placements[name])
        own = [salt for salt in range(8) if torch.equal(mine(makes(d, t, end, salt), its, mesh), parameter.grad)]
        if own:
            replicas, ends = range(mesh.size("dp")), (0, 1) if its.tied else (0,)
            shares = range(mesh.size("tp")) if its.kind == "partial" else (t,)
            total = sum(makes(r, s, e, own[0]) for r in replicas for s in shares for e in ends)
            parameter.grad = mine(total / mesh.size("dp"), its, mesh)
