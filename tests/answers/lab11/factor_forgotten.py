# kind: wrong
# about: Leaves out the factor E.
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "the factor E is missing"

# %% edit="balance"
# replace
    scale = experts * counts / (tokens * k) / tokens
# by
    scale = counts / (tokens * k) / tokens
