# kind: wrong
# about: Counts divided by the tokens, not by the T k choices: k where all is balanced.
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "it is k times too large"
# says: "balance_gradients": "divided by the T k choices"

# %% edit="balance"
# replace
    scale = experts * counts / (tokens * k) / tokens
# by
    scale = experts * counts / tokens / tokens
