# kind: wrong
# about: The sizes count padding as elements, so what is saved has padding in it (Z08).
# loses: layout_sizes, reshard
# says: "layout_sizes": "the padding is counted as elements"
# says: "reshard": "padding of 4 ranks was taken for data"

# %% solution="shard_layout"
def shard_layout(numel, ranks):
    shard = math.ceil(numel / ranks)
    return shard * ranks, [shard] * ranks
