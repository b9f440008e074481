# kind: wrong
# about: A differentiable all-reduce of the loss: every rank's backward pass counts.
# loses: loss_mean
# says: "loss_mean": "ranks' backward passes counted it"

# %% solution="sequence_loss"
def sequence_loss(logits, labels):
    from torch.distributed.nn.functional import all_reduce

    count = (labels != -100).sum()
    dist.all_reduce(count)
    return all_reduce(F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / count)
