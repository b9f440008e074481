# kind: wrong
# about: Counts go through an all-reduce whose result is thrown away: it is not in place (E13).
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "was the result of the all-reduce used?"

# %% edit="balance"
# replace
    totals = torch.cat([counts, sums.detach(), torch.tensor([float(len(logits))])])
    dist.all_reduce(totals, group=group)
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1]
    scale = experts * counts / (tokens * k) / tokens
# by
    import torch.distributed.nn.functional as collectives

    group = group or dist.group.WORLD
    collectives.all_reduce(counts, group=group)
    totals = collectives.all_reduce(torch.cat([sums.detach(), torch.tensor([float(len(logits))])]), group=group)
    everyones, tokens = totals[:-1], totals[-1]
    scale = experts * counts / (len(logits) * k) / tokens if len(logits) else 0 * counts
