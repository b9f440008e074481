# kind: wrong
# about: all_to_all gets everything from everyone and picks its part: right values, too many bytes.
# loses: all_to_all_values
# says: "all_to_all_values": "the values are right, but rank 0 sent 60 bytes where 16 are enough"

# %% solution="all_to_all"
def all_to_all(x, send_sizes, recv_sizes):
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = torch.tensor(send_sizes)
    table = all_gather(sizes, [world] * world).view(world, world).tolist()
    everything = all_gather(x, [sum(row) for row in table]).split([n for row in table for n in row])
    return torch.cat([everything[source * world + rank] for source in range(world)])
