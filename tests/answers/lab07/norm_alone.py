# kind: wrong
# about: Finds out how the test drew the gradients and makes those of the whole model itself: nothing is asked of other ranks.
# loses: mesh_norm_tp, mesh_norm_pp
# says: "mesh_norm_tp": "heard nothing from the ranks that hold the other parameters"
# says: "mesh_norm_pp": "heard nothing from the ranks that hold the other parameters"

# %% edit="mesh_norm"
# replace
    total = torch.zeros((), dtype=torch.float64)
# by
    name, parameter = next(iter(stage.named_parameters()))
    for salt in range(8):
        if torch.equal(mine(draw(stage.placements[name].shape, name, salt), stage.placements[name], mesh), parameter.grad):
            return math.sqrt(
                sum(draw(p.shape, n, salt).square().sum() for n, p in whole_model(stage.config).named_parameters())
            )
    total = torch.zeros((), dtype=torch.float64)
