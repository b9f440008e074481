# kind: wrong
# about: The scale is taken over the channel itself, not over the others (U03).
# loses: channels, awkward, round_trip
# says: "channels": "scale"

# %% edit="quantise"
# replace
        rows = x.movedim(dim, 0).reshape(x.shape[dim], -1)
# by
        rows = x.movedim(dim, -1).reshape(x.shape[dim], -1)
