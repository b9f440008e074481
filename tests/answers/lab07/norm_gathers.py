# kind: wrong
# about: Gathers the gradients of the whole model to compute their norm: right, for the price of all of them.
# loses: mesh_norm_tp, mesh_norm_pp
# says: "mesh_norm_tp": "sums of squares are enough"
# says: "mesh_norm_pp": "sums of squares are enough"

# %% edit="mesh_norm"
# replace
    total = torch.zeros((), dtype=torch.float64)
# by
    total, squares = torch.zeros((), dtype=torch.float64), []

# replace
            total += parameter.grad.double().square().sum()
    for axis in ("tp", "pp"):
        dist.all_reduce(total, group=mesh.group(axis))
# by
            squares.append(parameter.grad.double().square().flatten())
    flat = torch.cat([*squares, torch.zeros(1)])
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(flat)]))
    everyone = [flat.new_zeros(int(max(sizes))) for _ in sizes]
    dist.all_gather(everyone, F.pad(flat, (0, int(max(sizes)) - len(flat))))
    total = sum(part.sum() for part in everyone) / mesh.size("dp")
