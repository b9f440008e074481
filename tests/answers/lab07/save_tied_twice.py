# kind: wrong
# about: Both ends write the tied embedding.
# loses: save_once
# says: "save_once": "\"embedding.weight\" is written by ranks 0 and 2"

# %% edit="save"
# replace
        if not (placement.tied and not stage.first):
# by
        if True:
