# kind: right
# about: all_gather, reduce_scatter and all_to_all in rounds of one exchange each.
# loses:

# %% solution="all_gather"
def all_gather(x, sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    whole = torch.empty(sum(sizes), dtype=x.dtype)
    pieces = list(whole.split(sizes))
    pieces[rank].copy_(x)
    for step in range(world - 1):
        request = dist.isend(pieces[(rank - step) % world], (rank + 1) % world)
        dist.recv(pieces[(rank - step - 1) % world], (rank - 1) % world)
        request.wait()
    return whole

# %% solution="reduce_scatter"
def reduce_scatter(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = [piece.clone() for piece in x.tensor_split(world)]
    for step in range(1, world):
        incoming = torch.empty_like(pieces[(rank - step - 1) % world])
        request = dist.isend(pieces[(rank - step) % world], (rank + 1) % world)
        dist.recv(incoming, (rank - 1) % world)
        request.wait()
        pieces[(rank - step - 1) % world] += incoming
    return pieces[rank]

# %% solution="all_to_all"
def all_to_all(x, send_sizes, recv_sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing, result = list(x.split(send_sizes)), torch.empty(sum(recv_sizes), dtype=x.dtype)
    incoming = list(result.split(recv_sizes))
    incoming[rank].copy_(outgoing[rank])
    for step in range(1, world):
        target, source = (rank + step) % world, (rank - step) % world
        request = None
        if send_sizes[target]:
            request = dist.isend(outgoing[target], target)
        if recv_sizes[source]:
            dist.recv(incoming[source], source)
        if request:
            request.wait()
    return result
