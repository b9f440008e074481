# kind: wrong
# about: One queue for all ranks, whatever group was passed.
# loses: two_steps
# says: "two_steps": "capacity is that of all ranks"

# %% edit="drop_over_capacity"
# replace
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, own, group=group)
# by
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, own)
# replace
    before = before + sum(everyones[: dist.get_rank(group)])  # the same choice, of ranks before this one
# by
    before = before + sum(everyones[: dist.get_rank()])
