# kind: wrong
# about: The step count starts at 0 again: moments are divided by the wrong correction.
# loses: load_continues
# says: "load_continues": "steps later"

# %% edit="load"
# replace
    state = {"step": saved["step"]}
# by
    state = {"step": torch.tensor(0.0)}
