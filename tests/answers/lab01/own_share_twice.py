# kind: wrong
# about: The root starts from its own x and adds its own x once more.
# loses: broadcast_reduce
# says: "broadcast_reduce": "its own share in the sum twice"

# %% solution="reduce"
def reduce(x, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(x, dst)
        return
    own = x.clone()
    for other in range(world):
        part = own.clone()
        if other != dst:
            dist.recv(part, other)
        x += part
