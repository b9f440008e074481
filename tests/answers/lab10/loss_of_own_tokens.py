# kind: wrong
# about: Returns this rank's share: the ranks hold different losses.
# loses: loss_mean
# says: "loss_mean": "this rank's part of the sum only"

# %% edit="sequence_loss"
# replace
    whole = own.detach().clone()
    dist.all_reduce(whole)
    return own + (whole - own.detach())
# by
    return own
