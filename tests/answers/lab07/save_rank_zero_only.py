# kind: wrong
# about: Only rank 0 writes, and it knows only the first stage.
# loses: save_once
# says: "save_once": "nobody writes"

# %% edit="save"
# replace
    return written if mesh.coordinate("dp") == mesh.coordinate("tp") == 0 else {}
# by
    return written if dist.get_rank() == 0 else {}
