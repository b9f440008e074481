# kind: wrong
# about: C20: skips empty pieces when sending, but the receiver still waits for one.
# loses: scatter_gather
# says: "scatter_gather": "rank 1 waits in recv"

# %% solution="scatter"
def scatter(out, pieces, src):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(out, src)
        return
    out.copy_(pieces[src])
    for other in range(world):
        if other != src and pieces[other].numel() > 0:
            dist.send(pieces[other], other)
