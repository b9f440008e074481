# kind: wrong
# about: Takes any tensor-parallel size.
# loses: shards
# says: "shards": "would hold part of a head"

# %% edit="shard_weights"
# replace
    if config.heads % world or config.kv_heads % world:
        raise ValueError(f"{config.heads} heads and {config.kv_heads} KV heads do not divide over {world} ranks")
# by
