# kind: wrong
# about: No maximum is subtracted: logits of 300 overflow.
# loses: cross_entropy_values, cross_entropy_gradients
# says: "cross_entropy_values": "NaN or infinity"

# %% solution="vocab_cross_entropy"
def vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing=0.0, group=None):
    shifted = logits
    local = targets - start
    mine = (local >= 0) & (local < logits.shape[-1])
    at_target = shifted.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    parts = torch.stack([shifted.exp().sum(-1), at_target, shifted.sum(-1)])
    exponentials, at_target, total = reduce_from(parts, group)
    losses = exponentials.log() - (1 - label_smoothing) * at_target - label_smoothing * total / vocab_size
    counted = targets != -100
    return (losses * counted).sum() / counted.sum()
