# kind: wrong
# about: The mean of the ranks' own losses, and own gradients: a scale that depends on the split (E11).
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "the mean of the ranks' own losses"

# %% edit="balance"
# replace
    totals = torch.cat([counts, sums.detach(), torch.tensor([float(len(logits))])])
    dist.all_reduce(totals, group=group)
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1]
    scale = experts * counts / (tokens * k) / tokens
    own, whole = (scale * sums).sum(), (scale * everyones).sum()
    return own + (whole - own.detach())
# by
    tokens = max(len(logits), 1)
    own = (experts * counts / (tokens * k) / tokens * sums).sum() / dist.get_world_size(group)
    whole = own.detach().clone()
    dist.all_reduce(whole, group=group)
    return own + (whole - own.detach())
