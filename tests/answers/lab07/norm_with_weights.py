# kind: right
# about: Every rank brings all it has, weighted by the number of copies; one all-reduce over the world.

# %% solution="mesh_norm"
def mesh_norm(stage, mesh):
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        copies = mesh.size("dp") * (1 if placement.kind == "sharded" else mesh.size("tp")) * (2 if placement.tied else 1)
        total += parameter.grad.double().square().sum() / copies
    dist.all_reduce(total)
    return math.sqrt(total)
