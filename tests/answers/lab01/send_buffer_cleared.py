# kind: wrong
# about: C11: clears its staging buffer while the send from it is still under way.
# loses: ring_reduce_scatter_sums, ring_sum, ring_uneven, ring_in_place, ring_late

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        staging = chunks[(rank - step - 1) % world].clone()
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        request = dist.isend(staging, right)
        staging.zero_()
        dist.recv(incoming, left)
        request.wait()
        target += incoming
