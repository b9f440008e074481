# kind: wrong
# about: The balance loss and the z-loss are over all ranks, whatever group was passed.
# loses: two_steps
# says: "two_steps": "the losses are those of all ranks"

# %% edit="balance"
# replace
    dist.all_reduce(totals, group=group)
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1]
# by
    dist.all_reduce(totals)
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1]
# replace
    totals = torch.stack([own.detach(), torch.tensor(float(len(logits)))])
    dist.all_reduce(totals, group=group)
# by
    totals = torch.stack([own.detach(), torch.tensor(float(len(logits)))])
    dist.all_reduce(totals)
