# kind: wrong
# about: Pieces are views of the whole matrices.
# loses: shards
# says: "shards": "keeps all of the whole matrix alive"

# %% edit="shard_weights"
# replace
            own[name] = weight.chunk(world, dim)[rank].clone(memory_format=torch.contiguous_format)
# by
            own[name] = weight.chunk(world, dim)[rank]
