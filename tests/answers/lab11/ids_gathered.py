# kind: wrong
# about: Gathers everybody's ids and works through the whole queue on each rank: right, and too much traffic.
# loses: counts_traffic
# says: "counts_traffic": "k E counts to each other rank"

# %% solution="drop_over_capacity"
def drop_over_capacity(ids, num_experts, capacity, group=None):
    everyones = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, ids, group=group)
    rank, room, kept = dist.get_rank(group), [capacity] * num_experts, torch.full_like(ids, -1)
    for choice in range(ids.shape[1]):
        for source, theirs in enumerate(everyones):
            for token, expert in enumerate(theirs[:, choice].tolist()):
                room[expert] -= 1
                if room[expert] >= 0 and source == rank:
                    kept[token, choice] = expert
    return kept
