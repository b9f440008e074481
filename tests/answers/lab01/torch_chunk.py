# kind: wrong
# about: tensor.chunk may return fewer than p chunks.
# loses: ring_uneven, ring_in_place, ring_late
# says: "ring_uneven": "IndexError"
# says: "ring_in_place": "IndexError"
# says: "ring_late": "IndexError"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous().view(-1)
    chunks = list(flat.chunk(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
