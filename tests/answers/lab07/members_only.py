# kind: wrong
# about: C27: each rank makes only the groups that it is a member of.
# loses: make_groups_sums, make_groups_order
# says: "make_groups_order": "new_group"

# %% solution="make_groups"
def make_groups(shape):
    rank = dist.get_rank()
    return [dist.new_group(ranks) for groups in axis_groups(shape) for ranks in groups if rank in ranks]
