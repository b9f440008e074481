# kind: wrong
# about: C02: works on a flat copy of a strided x and never writes it back.
# loses: ring_in_place
# says: "ring_in_place": "still hold the rank's own input"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous().view(-1)
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
