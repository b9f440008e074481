# kind: wrong
# about: Sign error in the chunk index: right at two ranks, wrong at three.
# loses: ring_reduce_scatter_sums, ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_reduce_scatter_sums": "sizes differ"
# says: "ring_sum": "of 4 are wrong"
# says: "ring_uneven": "sizes differ"
# says: "ring_in_place": "sizes differ"
# says: "ring_late": "of 3 are wrong"
# says: "ring_traffic": "sizes differ"

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        outgoing = chunks[(rank + step + 1) % world]
        target = chunks[(rank + step + 2) % world]
        incoming = torch.empty_like(target)
        requests = [dist.isend(outgoing, right), dist.irecv(incoming, left)]
        for request in requests:
            request.wait()
        target += incoming
