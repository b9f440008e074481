# kind: right
# about: Reduce-scatter and all-gather of one flat buffer along dp; the tied weight in an all-reduce that the stages between join with zeros.

# %% solution="sync_gradients"
def sync_gradients(stage, mesh):
    grads = {name: p.grad for name, p in stage.named_parameters()}
    partial = [grads[name] for name, its in stage.placements.items() if its.kind == "partial"]
    if partial and mesh.size("tp") > 1:
        flat = torch.cat([g.reshape(-1) for g in partial])
        dist.all_reduce(flat, group=mesh.group("tp"))
        for g, part in zip(partial, flat.split([g.numel() for g in partial])):
            g.copy_(part.view_as(g))
    if mesh.size("pp") > 1 and stage.config.tied:
        one = next(iter(grads.values()))
        tied = [grads[name] for name, its in stage.placements.items() if its.tied]
        shared = tied[0] if tied else one.new_zeros(stage.config.vocab_size, stage.config.hidden)
        dist.all_reduce(shared, group=mesh.group("pp"))
    dp = mesh.size("dp")
    flat = torch.cat([g.reshape(-1) for g in grads.values()])
    numel = flat.numel()
    flat = F.pad(flat, (0, -numel % dp))
    piece = flat.new_empty(flat.numel() // dp)
    dist.reduce_scatter_single(piece, flat, group=mesh.group("dp"))
    dist.all_gather_single(flat, piece / dp, group=mesh.group("dp"))
    for (name, parameter), part in zip(stage.named_parameters(), flat[:numel].split([g.numel() for g in grads.values()])):
        parameter.grad = part.view_as(parameter).clone()
