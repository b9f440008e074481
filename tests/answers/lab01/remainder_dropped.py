# kind: wrong
# about: Chunks of numel // p elements: the remainder is never reduced.
# loses: ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_uneven": "own input"
# says: "ring_in_place": "element 3 of 4 still holds the rank's own input"
# says: "ring_late": "element 8 of 9 still holds the rank's own input"
# says: "ring_traffic": "3600 bytes"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    world = dist.get_world_size()
    flat = x.contiguous().view(-1)
    size = flat.numel() // world
    chunks = [flat[i * size : (i + 1) * size] for i in range(world)]
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
