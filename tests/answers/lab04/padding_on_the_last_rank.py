# kind: wrong
# about: Takes all padding off the last rank's share (Z05, Z06), here and when it saves.
# loses: layout_sizes, reshard
# says: "layout_sizes": "all padding was taken off the last rank, but it can fall on several"
# says: "reshard": "the padding of 4 ranks was taken for data"

# %% solution="shard_layout"
def shard_layout(numel, ranks):
    shard = (numel + ranks - 1) // ranks
    return shard * ranks, [shard] * (ranks - 1) + [max(numel - shard * (ranks - 1), 0)]
