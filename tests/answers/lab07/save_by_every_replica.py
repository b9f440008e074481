# kind: wrong
# about: Every replica writes the whole model.
# loses: save_once
# says: "save_once": "each name must be written once"

# %% edit="save"
# replace
    return written if mesh.coordinate("dp") == mesh.coordinate("tp") == 0 else {}
# by
    return written if mesh.coordinate("tp") == 0 else {}
