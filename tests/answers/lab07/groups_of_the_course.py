# kind: wrong
# about: Takes the groups from the course's own Mesh, which part 2 is given.
# loses: make_groups_order
# says: "make_groups_order": "no rank called dist.new_group"

# %% solution="make_groups"
def make_groups(shape):
    mesh = Mesh(*(1,) * (3 - len(shape)), *shape)
    return [mesh.group(axis) for axis in AXES[3 - len(shape) :]]
