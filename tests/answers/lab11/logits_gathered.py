# kind: wrong
# about: Gathers all logits and counts there: right, and far too much traffic.
# loses: counts_traffic
# says: "counts_traffic": "3E + 4 numbers to each other rank"

# %% edit="balance"
# replace
    sums = logits.float().softmax(-1).sum(0)
    counts = torch.bincount(ids.flatten(), minlength=experts).float()
# by
    everyones = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, (logits.detach(), ids), group=group)
    sums = logits.float().softmax(-1).sum(0)
    counts = torch.bincount(ids.flatten(), minlength=experts).float()
