# kind: wrong
# about: The tied weight counts on both ends.
# loses: mesh_norm_pp, mesh_step_losses
# says: "mesh_norm_pp": "the tied weight was counted on both ends"

# %% solution="mesh_norm"
def mesh_norm(stage, mesh):
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        if placement.kind == "sharded" or mesh.coordinate("tp") == 0:
            total += parameter.grad.double().square().sum()
    for axis in ("tp", "pp"):
        dist.all_reduce(total, group=mesh.group(axis))
    return total.sqrt().item()
