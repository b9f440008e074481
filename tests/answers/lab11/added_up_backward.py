# kind: wrong
# about: An all-reduce that autograd all-reduces once more on the way back: p times the gradient (E11).
# loses: balance_gradients, two_steps
# says: "balance_gradients": "added it up over the 2 ranks once too often"

# %% solution="balance"
def balance_loss(logits, ids, group=None):
    import torch.distributed.nn.functional as collectives

    experts, k = logits.shape[1], ids.shape[1]
    group = group or dist.group.WORLD
    probs = logits.float().softmax(-1)
    counts = F.one_hot(ids, experts).sum((0, 1)).float()
    totals = torch.cat([counts, torch.tensor([float(len(logits))])])
    dist.all_reduce(totals, group=group)
    sums = collectives.all_reduce(probs.sum(0), group=group)
    return experts * (totals[:-1] / (totals[-1] * k) * sums / totals[-1]).sum()


def z_loss(logits, group=None):
    own = logits.float().logsumexp(-1).square().sum()
    totals = torch.stack([own.detach(), torch.tensor(float(len(logits)))])
    dist.all_reduce(totals, group=group)
    return (own + (totals[0] - own.detach())) / totals[1]
