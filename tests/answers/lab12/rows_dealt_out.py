# kind: wrong
# about: Rank r holds every p-th row.
# loses: shards, forward_values, served_tokens, served_file
# says: "shards": "dealt out one by one"

# %% edit="shard_weights"
# replace
            own[name] = weight.chunk(world, dim)[rank].clone(memory_format=torch.contiguous_format)
# by
            own[name] = (weight[:, rank::world] if dim else weight[rank::world]).clone(memory_format=torch.contiguous_format)
