# kind: wrong
# about: Returns the pieces in the order of the exchange, its own first, not in rank order.
# loses: all_to_all_values
# says: "all_to_all_values": "wrong order: rotated by 1"

# %% solution="all_to_all"
def all_to_all(x, send_sizes, recv_sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing = x.split(send_sizes)
    incoming = [x.new_zeros(size) for size in recv_sizes]
    incoming[rank] = outgoing[rank]
    requests = []
    for step in range(1, world):
        target, source = (rank + step) % world, (rank - step) % world
        requests += [dist.isend(outgoing[target], target), dist.irecv(incoming[source], source)]
    for request in requests:
        request.wait()
    return torch.cat([incoming[(rank + step) % world] for step in range(world)])
