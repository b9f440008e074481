# kind: wrong
# about: Every n-th number is in a group, not neighbours.
# loses: groups, awkward, round_trip
# says: "groups": "the members of a group are neighbours"

# %% edit="quantise"
# replace
        return t.repeat_interleave(group_size, -1)
# by
        return t.repeat(*[1] * (t.dim() - 1), group_size)
# replace
        rows = x.unflatten(-1, (-1, group_size))
# by
        rows = x.unflatten(-1, (group_size, -1)).transpose(-1, -2)
