# student: Dmitri Petrov
# about: calls dist.all_reduce where the ring should be
# loses: ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_sum": "all_reduce"
# says: "ring_traffic": "all_reduce"
# %% solution="ring_all_reduce"
def ring_all_reduce(x: torch.Tensor) -> None:
    dist.all_reduce(x)
