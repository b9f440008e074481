# kind: wrong
# about: Writes -1 into the ids that it was given.
# loses: capacity_order, capacity_over_ranks, moe_dropped, two_steps
# says: "capacity_order": "must stay unchanged"

# %% edit="drop_over_capacity"
# replace
    return torch.where(place < capacity, ids, -1)
# by
    ids[place >= capacity] = -1
    return ids
