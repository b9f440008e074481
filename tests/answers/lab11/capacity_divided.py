# kind: wrong
# about: Each rank gets an equal part of the capacity, used or not.
# loses: capacity_over_ranks, moe_dropped, two_steps
# says: "capacity_over_ranks": "each rank got an equal part of the capacity"

# %% edit="drop_over_capacity"
# replace
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, own, group=group)
    total = sum(everyones)
# by
    total = own
    capacity = capacity // dist.get_world_size(group)
# replace
    before = before + sum(everyones[: dist.get_rank(group)])  # the same choice, of ranks before this one
# by
