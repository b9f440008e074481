# kind: wrong
# about: Every tp rank loads piece 0.
# loses: load_continues
# says: "load_continues": "right after"

# %% edit="load"
# replace
        return shard_of(saved[key], stage.placements[name].dim, mesh.coordinate("tp"), mesh.size("tp"))
# by
        return shard_of(saved[key], stage.placements[name].dim, 0, mesh.size("tp"))
