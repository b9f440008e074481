# kind: wrong
# about: Looks at the query heads only.
# loses: shards
# says: "shards": "would hold part of a head"

# %% edit="shard_weights"
# replace
    if config.heads % world or config.kv_heads % world:
# by
    if config.heads % world:
