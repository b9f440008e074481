# kind: wrong
# about: C14: an all-gather in both directions sends the lower half of the piece both ways.
# loses: all_gather_values
# says: "all_gather_values": "element 3 of 4 is wrong"

# %% solution="all_gather"
def all_gather(x, sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = [torch.zeros(size, dtype=x.dtype) for size in sizes]
    pieces[rank] = x
    lower = x[: (x.numel() + 1) // 2]
    for other in range(world):
        if other == rank:
            continue
        half = (sizes[other] + 1) // 2
        low, high = torch.empty(half, dtype=x.dtype), torch.empty(half, dtype=x.dtype)
        requests = [dist.isend(lower, other), dist.irecv(low, other)]
        requests += [dist.isend(lower, other), dist.irecv(high, other)]
        for request in requests:
            request.wait()
        pieces[other] = torch.cat([low, high])[: sizes[other]]
    return torch.cat(pieces)
