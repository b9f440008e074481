# kind: wrong
# about: Z10: replicated parameters count once for each tp rank.
# loses: mesh_norm_tp, mesh_norm_pp, mesh_step_losses
# says: "mesh_norm_tp": "what is not sharded was counted once for each of the 2 tp ranks"

# %% solution="mesh_norm"
def mesh_norm(stage, mesh):
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        if not (placement.tied and not stage.first):
            total += parameter.grad.double().square().sum()
    for axis in ("tp", "pp"):
        dist.all_reduce(total, group=mesh.group(axis))
    return total.sqrt().item()
