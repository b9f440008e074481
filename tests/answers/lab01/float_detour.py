# kind: wrong
# about: Adds up in float64: whole numbers above 2^53 lose their last digit.
# loses: ring_sum
# says: "ring_sum": "another number type"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous().view(-1).to(float64 if x.dtype == int64 else x.dtype)
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_reduce_scatter(chunks)
    ring_all_gather(chunks)
    x.copy_(flat.view(x.shape))
