# kind: wrong
# about: C01: receives into one buffer and adds another, which holds zeros.
# loses: ring_reduce_scatter_sums, ring_sum, ring_uneven, ring_in_place, ring_late
# says: "ring_reduce_scatter_sums": "own input"
# says: "ring_sum": "nothing was added"
# says: "ring_uneven": "own input"
# says: "ring_in_place": "nothing was added"
# says: "ring_late": "nothing was added"

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        outgoing = chunks[(rank - step - 1) % world]
        target = chunks[(rank - step - 2) % world]
        incoming, arrived = torch.zeros_like(target), torch.zeros_like(target)
        requests = [dist.isend(outgoing, right), dist.irecv(arrived, left)]
        for request in requests:
            request.wait()
        target += incoming
