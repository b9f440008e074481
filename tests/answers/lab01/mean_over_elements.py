# kind: wrong
# about: C15: takes a mean, and divides by the number of elements instead of ranks.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late
# says: "ring_sum": "divided by 12"
# says: "ring_uneven": "divided by 5"
# says: "ring_in_place": "divided by 24"
# says: "ring_late": "divided by 6"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous().view(-1)
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
    if x.numel():
        x.copy_(x / x.numel())
