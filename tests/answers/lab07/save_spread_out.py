# kind: right
# about: The writers of a stage are spread over its replicas and tp ranks, name by name.

# %% solution="save"
def save(stage, optimizer, mesh):
    everything = {name: p.detach() for name, p in stage.named_parameters()} | optimizer.state()
    step, written, turn = everything.pop("step"), {}, 0
    for key in sorted(everything):
        name, tensor = key.split("/")[0], everything[key]
        placement = stage.placements[name]
        if placement.dim is not None:
            whole = torch.zeros(placement.shape, dtype=tensor.dtype)
            whole.chunk(mesh.size("tp"), placement.dim)[mesh.coordinate("tp")].copy_(tensor)
            dist.all_reduce(whole, group=mesh.group("tp"))
            tensor = whole
        if placement.tied and not stage.last:
            continue
        turn += 1
        if (turn % mesh.size("dp"), turn % mesh.size("tp")) == (mesh.coordinate("dp"), mesh.coordinate("tp")):
            written[key] = tensor.clone()
    return written | ({"step": step} if dist.get_rank() == 0 else {})
