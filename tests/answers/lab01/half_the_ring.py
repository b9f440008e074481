# kind: wrong
# about: Stops after the reduce-scatter: each rank has only its own chunk of the sum.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_sum": "still hold the rank's own input"
# says: "ring_uneven": "only rank 0 is right"
# says: "ring_in_place": "still hold the rank's own input"
# says: "ring_late": "of 3 are wrong"
# says: "ring_traffic": "0.5 times the buffer"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous().view(-1)
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
