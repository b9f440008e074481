# kind: wrong
# about: Even ranks send first, odd ranks receive first: at four ranks two even ranks wait for each other.
# loses: reduce_scatter_values
# says: "reduce_scatter_values": "no wait can end"

# %% solution="reduce_scatter"
def reduce_scatter(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    pieces = x.tensor_split(world)
    total = pieces[rank].clone()
    for step in range(1, world):
        part = torch.empty_like(total)
        if rank % 2 == 0:
            dist.send(pieces[(rank + step) % world], (rank + step) % world)
            dist.recv(part, (rank - step) % world)
        else:
            dist.recv(part, (rank - step) % world)
            dist.send(pieces[(rank + step) % world], (rank + step) % world)
        total += part
    return total
