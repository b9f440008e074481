# kind: right
# about: Cuts each chunk into messages of at most 64 elements: more messages, the same bytes.
# loses:

# %% solution="ring_reduce_scatter"
def in_segments(outgoing, incoming, right, left):
    requests = [dist.isend(part, right) for part in outgoing.split(64)]
    requests += [dist.irecv(part, left) for part in incoming.split(64)]
    for request in requests:
        request.wait()


def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(world - 1):
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        in_segments(chunks[(rank - step - 1) % world], incoming, (rank + 1) % world, (rank - 1) % world)
        target.add_(incoming)

# %% solution="ring_all_gather"
def ring_all_gather(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(world - 1):
        outgoing, incoming = chunks[(rank - step) % world], chunks[(rank - step - 1) % world]
        in_segments(outgoing, incoming, (rank + 1) % world, (rank - 1) % world)
