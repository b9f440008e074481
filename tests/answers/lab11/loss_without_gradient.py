# kind: wrong
# about: Returns the sum over the ranks, which no longer knows this rank's logits.
# loses: balance_gradients, counts_traffic, two_steps
# says: "balance_gradients": "no gradient flows to the logits"

# %% edit="balance"
# replace
    return own + (whole - own.detach())
# by
    return whole
