# kind: wrong
# about: C27: every rank makes all groups, but its own before the others': the order differs between ranks.
# loses: make_groups_sums, make_groups_order
# says: "make_groups_order": "new_group"

# %% solution="make_groups"
def make_groups(shape):
    rank, result = dist.get_rank(), []
    for groups in axis_groups(shape):
        for ranks in sorted(groups, key=lambda ranks: rank not in ranks):
            group = dist.new_group(ranks)
            if rank in ranks:
                result.append(group)
    return result
