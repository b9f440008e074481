# kind: wrong
# about: Copies of a replicated activation get different masks (T13).
# loses: dropout_streams
# says: "dropout_streams": "copies of one activation"

# %% solution="dropout_generators"
def dropout_generators(seed, dp_rank, tp_rank):
    base = ((seed * 1000 + dp_rank) * 1000 + tp_rank) * 2
    return torch.Generator().manual_seed(base), torch.Generator().manual_seed(base + 1)
