# kind: wrong
# about: Sends to the left with the chunk indices of a ring to the right.
# loses: ring_all_gather_order, ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_all_gather_order": "sizes differ"
# says: "ring_sum": "of 4 are wrong"
# says: "ring_uneven": "sizes differ"
# says: "ring_in_place": "sizes differ"
# says: "ring_late": "of 3 are wrong"
# says: "ring_traffic": "in a ring it sends to one neighbour only"

# %% solution="ring_all_gather"
def ring_all_gather(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        requests = [dist.isend(chunks[(rank - step) % world], left)]
        requests += [dist.irecv(chunks[(rank - step - 1) % world], right)]
        for request in requests:
            request.wait()
