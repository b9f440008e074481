# kind: wrong
# about: Every axis gets blocks of neighbouring ranks, as if its ranks counted fastest.
# loses: axis_groups_values, make_groups_sums, make_groups_order
# says: "axis_groups_values": "axis 0 has the groups"
# says: "make_groups_order": "never called new_group for"

# %% solution="axis_groups"
def axis_groups(shape):
    ranks = list(range(math.prod(shape)))
    return [[ranks[k : k + size] for k in range(0, len(ranks), size)] for size in shape]
