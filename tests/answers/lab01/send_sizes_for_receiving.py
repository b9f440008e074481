# kind: wrong
# about: C18: receives as many elements as it sends, not the transposed sizes.
# loses: all_to_all_values
# says: "all_to_all_values": "sizes differ"

# %% solution="all_to_all"
def all_to_all(x, send_sizes, recv_sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing = x.split(send_sizes)
    incoming = [x.new_zeros(max(size, got)) for size, got in zip(send_sizes, recv_sizes)]
    incoming[rank] = outgoing[rank]
    requests = []
    for other in range(world):
        if other != rank:
            requests += [dist.isend(outgoing[other], other), dist.irecv(incoming[other], other)]
    for request in requests:
        request.wait()
    return torch.cat([piece[:size] for piece, size in zip(incoming, send_sizes)])
