# kind: wrong
# about: The sum is returned in a new tensor; x itself stays as it was.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late
# says: "ring_sum": "the rank's own input"
# says: "ring_uneven": "the rank's own input"
# says: "ring_in_place": "the rank's own input"
# says: "ring_late": "the rank's own input"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.reshape(-1).clone()
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    return flat.view(x.shape)
