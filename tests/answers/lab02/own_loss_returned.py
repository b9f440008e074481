# kind: wrong
# about: Returns the rank's own loss, not that of all.
# loses: accumulate_values
# says: "accumulate_values": "the loss that accumulate returned"

# %% edit="accumulate"
# replace
    return float(count[1] / total)
# by
    return float(loss_sum / sum((targets != -100).sum() for _, targets in micro_batches).clamp(min=1))
