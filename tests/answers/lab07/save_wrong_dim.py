# kind: wrong
# about: Pieces are put together along dim 0, whatever was cut.
# loses: save_once
# says: "save_once": "has shape"

# %% edit="save"
# replace
            tensor = torch.cat(pieces, placement.dim)
# by
            tensor = torch.cat(pieces, 0)
