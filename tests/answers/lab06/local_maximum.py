# kind: wrong
# about: The maximum is not all-reduced: each rank's exponentials are relative to its own (T10).
# loses: cross_entropy_values, cross_entropy_gradients, vocab_traffic, passed_group
# says: "cross_entropy_values": "relative to each rank's own largest logit"

# %% solution="vocab_cross_entropy"
def vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing=0.0, group=None):
    top = logits.detach().amax(-1, keepdim=True)
    local = targets - start
    mine = (local >= 0) & (local < logits.shape[-1])
    at_target = logits.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    parts = torch.stack([(logits - top).exp().sum(-1), at_target, logits.sum(-1)])
    exponentials, at_target, total = reduce_from(parts, group)
    logsum = exponentials.log() + top.squeeze(-1)
    losses = logsum - (1 - label_smoothing) * at_target - label_smoothing * total / vocab_size
    counted = targets != -100
    return (losses * counted).sum() / counted.sum()
