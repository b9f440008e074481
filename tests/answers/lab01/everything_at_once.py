# kind: right
# about: All requests of the rooted operations are started before the first wait.
# loses:

# %% solution="broadcast"
def broadcast(x, src):
    rank, others = dist.get_rank(), [r for r in range(dist.get_world_size()) if r != src]
    if rank == src:
        requests = [dist.isend(x, other) for other in others]
    else:
        requests = [dist.irecv(x, src)]
    for request in requests:
        request.wait()

# %% solution="gather"
def gather(x, sizes, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        return dist.isend(x, dst).wait() and None
    whole = torch.empty(sum(sizes), dtype=x.dtype)
    pieces = whole.split(sizes)
    requests = [dist.irecv(pieces[other], other) for other in range(world) if other != dst]
    pieces[dst].copy_(x)
    for request in requests:
        request.wait()
    return whole

# %% solution="scatter"
def scatter(out, pieces, src):
    if dist.get_rank() == src:
        requests = [dist.isend(piece, other) for other, piece in enumerate(pieces) if other != src]
        out[:] = pieces[src]
        [request.wait() for request in requests]
    else:
        dist.irecv(out, src).wait()
