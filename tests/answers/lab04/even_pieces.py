# kind: wrong
# about: Spreads elements as tensor_split does; equal shards are cut at multiples of the shard.
# loses: layout_sizes, reshard
# says: "layout_sizes": "only the last ones can be short"

# %% solution="shard_layout"
def shard_layout(numel, ranks):
    shard = -(-numel // ranks)
    return shard * ranks, [numel // ranks + (rank < numel % ranks) for rank in range(ranks)]
