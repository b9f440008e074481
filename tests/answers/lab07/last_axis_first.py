# kind: right
# about: Makes the groups in another order, the same on all ranks, and skips those of one rank for one of its own.

# %% solution="make_groups"
def make_groups(shape):
    rank, mine = dist.get_rank(), {}
    for axis in reversed(range(len(shape))):
        for ranks in reversed(sorted(axis_groups(shape)[axis])):
            group = dist.new_group(ranks)
            if rank in ranks:
                mine[axis] = group
    return [mine[axis] for axis in range(len(shape))]
