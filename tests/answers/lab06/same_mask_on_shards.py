# kind: wrong
# about: Every rank of a tensor-parallel group draws the same mask for its shard (T13).
# loses: dropout_streams
# says: "dropout_streams": "sharded of"

# %% solution="dropout_generators"
def dropout_generators(seed, dp_rank, tp_rank):
    return (
        torch.Generator().manual_seed((seed * 1000 + dp_rank) * 2),
        torch.Generator().manual_seed((seed * 1000 + dp_rank) * 2 + 1),
    )
