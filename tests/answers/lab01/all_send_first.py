# kind: wrong
# about: Every rank sends first with a blocking send, so no rank ever receives.
# loses: ring_reduce_scatter_sums, ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_reduce_scatter_sums": "no wait can end"
# says: "ring_sum": "no wait can end"
# says: "ring_uneven": "no wait can end"
# says: "ring_in_place": "no wait can end"
# says: "ring_late": "no wait can end"
# says: "ring_traffic": "no wait can end"

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        outgoing = chunks[(rank - step - 1) % world]
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        dist.send(outgoing, right)
        dist.recv(incoming, left)
        target += incoming
