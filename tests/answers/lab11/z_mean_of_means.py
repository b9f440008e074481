# kind: wrong
# about: Each rank takes the mean of its own tokens, then the ranks' mean; ranks have different numbers of tokens.
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "they have different numbers of tokens"

# %% edit="balance"
# replace
    own = logits.float().logsumexp(-1).square().sum()
    totals = torch.stack([own.detach(), torch.tensor(float(len(logits)))])
# by
    own = logits.float().logsumexp(-1).square().sum() / max(len(logits), 1)
    totals = torch.stack([own.detach(), torch.tensor(1.0)])
