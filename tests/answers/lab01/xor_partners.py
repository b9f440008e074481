# kind: wrong
# about: Exchanges with rank ^ k: complete only when p is a power of two.
# loses: all_to_all_values
# says: "all_to_all_values": "element 2 of 3 is wrong"

# %% solution="all_to_all"
def all_to_all(x, send_sizes, recv_sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing = x.split(send_sizes)
    incoming = [x.new_zeros(size) for size in recv_sizes]
    incoming[rank] = outgoing[rank]
    for k in range(1, world):
        other = rank ^ k
        if other < world:
            requests = [dist.isend(outgoing[other], other), dist.irecv(incoming[other], other)]
            for request in requests:
                request.wait()
    return torch.cat(incoming)
