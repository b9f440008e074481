# kind: right
# about: Blocking sends, ordered: even ranks send first, odd ranks receive first.
# loses:

# %% solution="ring_reduce_scatter"
def pass_on(outgoing, incoming, right, left):
    if dist.get_rank() % 2 == 0:
        dist.send(outgoing, right)
        dist.recv(incoming, left)
    else:
        dist.recv(incoming, left)
        dist.send(outgoing, right)


def ring_reduce_scatter(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(world - 1):
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        pass_on(chunks[(rank - step - 1) % world], incoming, (rank + 1) % world, (rank - 1) % world)
        target += incoming

# %% solution="ring_all_gather"
def ring_all_gather(chunks):
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(world - 1):
        outgoing, incoming = chunks[(rank - step) % world], chunks[(rank - step - 1) % world]
        pass_on(outgoing, incoming, (rank + 1) % world, (rank - 1) % world)
