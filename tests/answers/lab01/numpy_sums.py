# kind: right
# about: Adds with numpy on memory that tensors share.
# loses:

# %% solution="reduce"
def reduce(x, dst):
    if dist.get_rank() != dst:
        dist.send(x, dst)
        return
    parts = []
    for other in range(dist.get_world_size()):
        if other != dst:
            parts.append(torch.empty_like(x))
            dist.recv(parts[-1], other)
    wide = [part.to(int64).numpy() for part in [x, *parts]]
    x.copy_(torch.from_numpy(np.sum(wide, axis=0)))

# %% solution="reduce_scatter"
def reduce_scatter(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = [piece.clone() for piece in x.tensor_split(world)]
    parts, requests = [], []
    for step in range(1, world):
        target, source = (rank + step) % world, (rank - step) % world
        parts.append(torch.empty_like(pieces[rank]))
        requests += [dist.irecv(parts[-1], source), dist.isend(pieces[target], target)]
    [request.wait() for request in requests]
    wide = [part.to(int64).numpy() for part in [pieces[rank], *parts]]
    return torch.from_numpy(np.sum(wide, axis=0)).to(x.dtype)
