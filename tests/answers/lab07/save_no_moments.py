# kind: wrong
# about: The state of the optimizer is not saved.
# loses: save_once
# says: "save_once": "/exp_avg\""

# %% edit="save"
# replace
    for name, tensor in {**held, **state}.items():
# by
    for name, tensor in held.items():
