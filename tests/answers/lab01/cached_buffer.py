# kind: wrong
# about: Keeps a buffer between calls and adds to what is left in it: the second call is wrong.
# loses: ring_late, ring_in_place
# says: "ring_late": "call 2"
# says: "ring_in_place": "x is a transpose"

# %% solution="ring_all_reduce"
kept = {}


def ring_all_reduce(x):
    key = (x.numel(), x.dtype)
    flat = kept.setdefault(key, torch.zeros(x.numel(), dtype=x.dtype))
    flat += x.reshape(-1)
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    x.copy_(flat.view(x.shape))
