# kind: wrong
# about: Gathers what every rank of the world holds, on every rank, and lets rank 0 write it.
# loses: save_once
# says: "save_once": "bytes along world"

# %% edit="save"
# replace
        if placement.kind == "sharded":
            pieces = [torch.empty_like(tensor) for _ in mesh.ranks("tp")]
            dist.all_gather(pieces, tensor.contiguous(), group=mesh.group("tp"))
            tensor = torch.cat(pieces, placement.dim)
        if not (placement.tied and not stage.first):
            written[name] = tensor.clone()
    if stage.first:
        written["step"] = state["step"]
    return written if mesh.coordinate("dp") == mesh.coordinate("tp") == 0 else {}
# by
        written[name] = (placement, mesh.coordinate("tp"), tensor.clone())
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, written)
    whole = {"step": state["step"]}
    for name, (placement, _, _) in {name: one for part in everyone for name, one in part.items()}.items():
        pieces = {part[name][1]: part[name][2] for part in everyone if name in part}
        sharded = placement.kind == "sharded"
        whole[name] = torch.cat([pieces[t] for t in sorted(pieces)], placement.dim) if sharded else pieces[0]
    return whole if dist.get_rank() == 0 else {}
