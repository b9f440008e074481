# kind: wrong
# about: C02: reduces the storage behind a strided x, not its elements.
# loses: ring_in_place
# says: "ring_in_place": "elements 1..3 of 4 still hold the rank's own input"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.as_strided((x.numel(),), (1,))
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
