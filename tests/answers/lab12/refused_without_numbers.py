# kind: wrong
# about: Refuses, and does not say why.
# loses: shards
# says: "shards": "name the"

# %% edit="shard_weights"
# replace
        raise ValueError(f"{config.heads} heads and {config.kv_heads} KV heads do not divide over {world} ranks")
# by
        raise ValueError("this size is not possible")
