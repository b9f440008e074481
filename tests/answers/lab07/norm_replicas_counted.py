# kind: wrong
# about: Z11: replicas are counted too; the norm grows with dp.
# loses: mesh_norm_tp, mesh_norm_pp, mesh_step_losses
# says: "mesh_norm_tp": "all 2 replicas were counted"

# %% solution="mesh_norm"
def mesh_norm(stage, mesh):
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        if not (placement.kind != "sharded" and mesh.coordinate("tp") or placement.tied and not stage.first):
            total += parameter.grad.double().square().sum()
    dist.all_reduce(total)
    return total.sqrt().item()
