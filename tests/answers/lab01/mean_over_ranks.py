# kind: wrong
# about: Divides the sum by the number of ranks; a sum is asked for.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late
# says: "ring_sum": "divided by the number of ranks"
# says: "ring_uneven": "divided by the number of ranks"
# says: "ring_in_place": "divided by the number of ranks"
# says: "ring_late": "divided by the number of ranks"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous().view(-1)
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    if not x.is_contiguous():
        x.copy_(flat.view(x.shape))
    x.copy_(x / dist.get_world_size())
