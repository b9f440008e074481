# kind: wrong
# about: Rank 0 of each tp group writes its own pieces as if they were whole.
# loses: save_once
# says: "save_once": "this is one rank's shard"

# %% edit="save"
# replace
        if placement.kind == "sharded":
# by
        if False:
