# kind: right
# about: Walks through its own choices in Python, with what the ranks before it have used.

# %% solution="drop_over_capacity"
def drop_over_capacity(ids, num_experts, capacity, group=None):
    rank, ranks, k = dist.get_rank(group), dist.get_world_size(group), ids.shape[1]
    own = torch.stack([torch.bincount(ids[:, choice], minlength=num_experts) for choice in range(k)])
    table = torch.zeros(ranks, k, num_experts, dtype=torch.int64)
    dist.all_gather(list(table.unbind()), own, group=group)
    kept = ids.clone()
    for choice in range(k):
        used = table[:, :choice].sum((0, 1)) + table[:rank, choice].sum(0)
        for token, expert in enumerate(ids[:, choice].tolist()):
            if used[expert] >= capacity:
                kept[token, choice] = -1
            used[expert] += 1
    return kept
