# kind: wrong
# about: Each rank's loss is that of its own tokens; nothing is added up.
# loses: balance_values, balance_gradients, two_steps
# says: "balance_values": "nothing was added up over the ranks"
# says: "balance_gradients": "this rank's own tokens"

# %% edit="balance"
# replace
    dist.all_reduce(totals, group=group)
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1]
# by
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1].clamp(min=1)
