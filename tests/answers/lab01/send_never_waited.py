# kind: wrong
# about: C11: broadcast returns before its sends are over, so the caller overwrites what is still to be sent.
# loses: broadcast_reduce
# says: "broadcast_reduce": "99, which the caller wrote after the call was over"

# %% solution="broadcast"
pending = []


def broadcast(x, src):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == src:
        for other in range(world):
            if other != src:
                pending.append(dist.isend(x, other))
    else:
        dist.recv(x, src)
