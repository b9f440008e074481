# kind: wrong
# about: Each rank divides by its own number of labels (F08).
# loses: loss_mean
# says: "loss_mean": "by this rank's number of labels"

# %% solution="sequence_loss"
def sequence_loss(logits, labels):
    own = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (labels != -100).sum().clamp(min=1)
    total = torch.stack([F.cross_entropy(logits.detach().flatten(0, 1), labels.flatten(), reduction="sum"),
                         (labels != -100).sum().float()])
    dist.all_reduce(total)
    return own + (total[0] / total[1] - own.detach())
