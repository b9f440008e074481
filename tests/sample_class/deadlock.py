# student: Elif Yıldız
# about: every rank receives before it sends, so the ring waits for itself
# loses: ring_reduce_scatter_sums, ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_reduce_scatter_sums": "receiving and nobody sends"
# says: "ring_traffic": "line 6 of cell"
# %% solution="ring_reduce_scatter"
def ring_reduce_scatter(chunks: list[torch.Tensor]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(world - 1):
        target = chunks[(rank - step - 2) % world]
        incoming = torch.empty_like(target)
        dist.recv(incoming, (rank - 1) % world)
        dist.send(chunks[(rank - step - 1) % world], (rank + 1) % world)
        target += incoming
