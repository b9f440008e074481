# kind: wrong
# about: `if dim:` takes axis 0 for none (U02).
# loses: channels, awkward
# says: "channels": "has shape (), wanted (5,)"

# %% edit="quantise"
# replace
    elif dim is not None:
# by
    elif dim:
