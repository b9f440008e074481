# kind: wrong
# about: Concatenates beginning with its own piece instead of rank 0's.
# loses: all_gather_values
# says: "all_gather_values": "rotated by 1"

# %% solution="all_gather"
def all_gather(x, sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = [x]
    for step in range(1, world):
        source, target = (rank - step) % world, (rank + step) % world
        piece = torch.empty(sizes[source], dtype=x.dtype)
        requests = [dist.isend(x, target), dist.irecv(piece, source)]
        for request in requests:
            request.wait()
        pieces.append(piece)
    return torch.cat(pieces)
