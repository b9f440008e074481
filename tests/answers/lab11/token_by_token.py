# kind: wrong
# about: Serves all choices of a token before the next token's.
# loses: capacity_order, capacity_over_ranks, moe_dropped, two_steps
# says: "capacity_order": "all first choices come before all second choices"

# %% solution="drop_over_capacity"
def drop_over_capacity(ids, num_experts, capacity, group=None):
    hot = F.one_hot(ids.flatten(), num_experts)
    own = hot.sum(0)
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, own, group=group)
    before = sum(everyones[: dist.get_rank(group)]) + torch.zeros_like(own)
    place = ((hot.cumsum(0) - 1 + before) * hot).sum(-1).view_as(ids)
    return torch.where(place < capacity, ids, -1)
