# kind: wrong
# about: The mean of the ranks' means.
# loses: loss_mean
# says: "loss_mean": "the mean of the ranks' means"

# %% solution="sequence_loss"
def sequence_loss(logits, labels):
    some = (labels != -100).any()
    own = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (labels != -100).sum().clamp(min=1)
    parts = torch.stack([own.detach(), some.float()])
    dist.all_reduce(parts)
    return own / parts[1] + (parts[0] / parts[1] - (own / parts[1]).detach())
