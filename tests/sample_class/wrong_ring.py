# student: Chiara Rossi
# about: a ring that drops the remainder when the ranks do not divide the elements
# loses: ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_uneven": "the rank's own input"
# %% solution="ring_all_reduce"
def ring_all_reduce(x: torch.Tensor) -> None:
    world = dist.get_world_size()
    flat = x.contiguous().view(-1)
    size = flat.numel() // world
    chunks = [flat[i * size : (i + 1) * size] for i in range(world)]
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
