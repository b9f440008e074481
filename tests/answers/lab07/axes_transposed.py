# kind: wrong
# about: The groups of the axes come in the opposite order: tp's where dp's should be.
# loses: axis_groups_values, make_groups_sums
# says: "axis_groups_values": "These are the groups along axis 1"
# says: "make_groups_sums": "the group is"

# %% solution="axis_groups"
def axis_groups(shape):
    numbered = torch.arange(math.prod(shape)).reshape(shape)
    return [numbered.movedim(axis, -1).reshape(-1, shape[axis]).tolist() for axis in reversed(range(len(shape)))]
