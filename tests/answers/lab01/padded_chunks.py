# kind: right
# about: Pads the buffer to p equal chunks and cuts the padding off again.
# loses:

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    world = dist.get_world_size()
    size = -(-x.numel() // world)
    padded = torch.zeros(size * world, dtype=x.dtype)
    padded[: x.numel()] = x.reshape(-1)
    chunks = list(padded.split(size)) if size else [padded[:0] for _ in range(world)]
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    x.copy_(padded[: x.numel()].view(x.shape))
