# kind: right
# about: Adds up plain losses and divides gradients and loss afterwards; the last stage tells the others the loss by broadcast.

# %% solution="mesh_step"
def mesh_step(stage, mesh, optimizer, tokens, targets, micro_batches, max_norm=None):
    each = tokens.shape[0] // mesh.size("dp")
    mine = slice(mesh.coordinate("dp") * each, (mesh.coordinate("dp") + 1) * each)
    parts, wanted = tokens[mine].split(each // micro_batches), targets[mine].split(each // micro_batches)
    stage.zero_grad(set_to_none=True)
    losses = run_gpipe(stage, mesh, parts, lambda k, y: F.cross_entropy(y.transpose(1, 2), wanted[k], reduction="sum"))
    for p in stage.parameters():
        p.grad /= each * tokens.shape[1]
    sync_gradients(stage, mesh)
    norm = mesh_norm(stage, mesh)
    if max_norm is not None and norm + 1e-6 > max_norm:
        for p in stage.parameters():
            p.grad *= max_norm / (norm + 1e-6)
    optimizer.step()
    loss = torch.tensor([sum(losses) / targets.numel()], dtype=torch.float64)
    dist.all_reduce(loss, group=mesh.group("dp"))
    dist.broadcast(loss, src=mesh.ranks("pp")[-1], group=mesh.group("pp"))
    return float(loss)
