# kind: wrong
# about: scatter sends to the others and forgets the root's own piece.
# loses: scatter_gather
# says: "scatter_gather": "were never written"

# %% solution="scatter"
def scatter(out, pieces, src):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != src:
        dist.recv(out, src)
        return
    for other in range(world):
        if other != src:
            dist.send(pieces[other], other)
