# kind: wrong
# about: The mean over no label at all is 0/0 (F09).
# loses: loss_mean
# says: "loss_mean": "This rank has no label that counts"

# %% solution="sequence_loss"
def sequence_loss(logits, labels):
    count = (labels != -100).sum().float()
    total = count.clone()
    dist.all_reduce(total)
    own = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) * count / total
    whole = own.detach().clone()
    dist.all_reduce(whole)
    return own + (whole - own.detach())
