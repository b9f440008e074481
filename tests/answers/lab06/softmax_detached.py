# kind: wrong
# about: No gradient through the sum of exponentials: ranks without the target get none (T08).
# loses: cross_entropy_gradients, passed_group
# says: "cross_entropy_gradients": "the softmax is missing"

# %% solution="vocab_cross_entropy"
def vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing=0.0, group=None):
    top = logits.detach().amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - top.unsqueeze(-1)
    local = targets - start
    mine = (local >= 0) & (local < logits.shape[-1])
    at_target = shifted.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    parts = torch.stack([shifted.detach().exp().sum(-1), at_target, shifted.sum(-1)])
    exponentials, at_target, total = reduce_from(parts, group)
    losses = exponentials.log() - (1 - label_smoothing) * at_target - label_smoothing * total / vocab_size
    counted = targets != -100
    return (losses * counted).sum() / counted.sum()
