# kind: wrong
# about: Keeps a choice at place `capacity`, counted from 0.
# loses: capacity_order, capacity_over_ranks, moe_dropped, two_steps
# says: "capacity_order": "one more than the capacity was kept"

# %% edit="drop_over_capacity"
# replace
    return torch.where(place < capacity, ids, -1)
# by
    return torch.where(place <= capacity, ids, -1)
