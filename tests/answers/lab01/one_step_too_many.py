# kind: wrong
# about: The reduce-scatter takes p steps instead of p-1: the all-gather then overwrites the chunk that was added to once more.
# loses: ring_traffic
# says: "ring_traffic": "1.5 times the buffer"

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world if world > 1 else 0):
        outgoing = chunks[(rank - step - 1) % world]
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        requests = [dist.isend(outgoing, right), dist.irecv(incoming, left)]
        for request in requests:
            request.wait()
        target += incoming
