# kind: wrong
# about: Adds the rank numbers to the seed: (0, 1) and (1, 0) share a stream (G04).
# loses: dropout_streams
# says: "dropout_streams": "draw the same mask"

# %% solution="dropout_generators"
def dropout_generators(seed, dp_rank, tp_rank):
    return (
        torch.Generator().manual_seed(seed * 10000 + dp_rank),
        torch.Generator().manual_seed(seed * 10000 + 5000 + dp_rank + tp_rank),
    )
