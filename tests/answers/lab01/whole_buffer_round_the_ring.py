# kind: wrong
# about: Sends the whole buffer p-1 times round the ring: right values, (p-1) times the bytes.
# loses: ring_traffic
# says: "ring_traffic": "3 times the buffer"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing, incoming = x.contiguous().clone(), torch.empty(x.shape, dtype=x.dtype)
    for _ in range(world - 1):
        requests = [dist.isend(outgoing, (rank + 1) % world), dist.irecv(incoming, (rank - 1) % world)]
        for request in requests:
            request.wait()
        x += incoming
        outgoing, incoming = incoming, outgoing
