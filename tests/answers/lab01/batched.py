# kind: right
# about: Uses batch_isend_irecv.
# loses:

# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        outgoing = chunks[(rank - step - 1) % world]
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        operations = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        target += incoming

# %% solution="ring_all_gather"
def ring_all_gather(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    for step in range(world - 1):
        operations = [dist.P2POp(dist.isend, chunks[(rank - step) % world], right), dist.P2POp(dist.irecv, chunks[(rank - step - 1) % world], left)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
