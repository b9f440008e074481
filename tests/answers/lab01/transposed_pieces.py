# kind: wrong
# about: Sends the piece for its left-hand partner to the right-hand one: right at two ranks.
# loses: all_to_all_values
# says: "all_to_all_values": "elements 1..2 of 3 are wrong"

# %% solution="all_to_all"
def all_to_all(x, send_sizes, recv_sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing = x.split(send_sizes)
    incoming = [x.new_zeros(size) for size in recv_sizes]
    incoming[rank] = outgoing[rank]
    for step in range(1, world):
        target, source = (rank + step) % world, (rank - step) % world
        requests = [dist.isend(outgoing[source], target), dist.irecv(incoming[source], source)]
        for request in requests:
            request.wait()
    return torch.cat(incoming)
