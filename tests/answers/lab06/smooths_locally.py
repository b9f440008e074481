# kind: wrong
# about: Label smoothing takes the mean over this rank's part of the vocabulary (T06).
# loses: cross_entropy_values, cross_entropy_gradients, vocab_traffic
# says: "cross_entropy_values": "smoothing is over this rank's part of the vocabulary"

# %% solution="vocab_cross_entropy"
def vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing=0.0, group=None):
    top = logits.detach().amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - top.unsqueeze(-1)
    local = targets - start
    mine = (local >= 0) & (local < logits.shape[-1])
    at_target = shifted.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    parts = torch.stack([shifted.exp().sum(-1), at_target, shifted.sum(-1)])
    exponentials, at_target, total = reduce_from(parts, group)
    losses = exponentials.log() - (1 - label_smoothing) * at_target - label_smoothing * shifted.mean(-1)
    counted = targets != -100
    return (losses * counted).sum() / counted.sum()
