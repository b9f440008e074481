# kind: wrong
# about: Broadcasts from rank 0 whatever src is.
# loses: broadcast_reduce
# says: "broadcast_reduce": "the rank's own input"

# %% solution="broadcast"
def broadcast(x, src):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        for other in range(1, world):
            dist.send(x, other)
    else:
        dist.recv(x, 0)
