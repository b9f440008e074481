# kind: wrong
# about: Each rank fills the whole capacity with its own tokens (E14).
# loses: capacity_over_ranks, moe_dropped, two_steps
# says: "capacity_over_ranks": "each rank filled the capacity with its own tokens"
# says: "moe_dropped": "its own tokens"

# %% edit="drop_over_capacity"
# replace
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, own, group=group)
    total = sum(everyones)
# by
    total = own
# replace
    before = before + sum(everyones[: dist.get_rank(group)])  # the same choice, of ranks before this one
# by
