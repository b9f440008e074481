# kind: wrong
# about: The mean of log-sum-exp, not of its square.
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "the square is missing"

# %% edit="balance"
# replace
    own = logits.float().logsumexp(-1).square().sum()
# by
    own = logits.float().logsumexp(-1).sum()
