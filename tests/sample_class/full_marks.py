# student: Okafor, Amara
# about: every task right, the ring all-reduce by a road of its own
# %% solution="ring_all_reduce"
def ring_all_reduce(x: torch.Tensor) -> None:
    world = dist.get_world_size()
    work = x.reshape(-1).clone()
    parts = list(torch.tensor_split(work, world))
    ring_reduce_scatter(parts)
    ring_all_gather(parts)
    x.copy_(work.reshape(x.shape))
