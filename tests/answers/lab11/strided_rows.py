# kind: wrong
# about: Hands non-contiguous rows to gloo.
# loses: exchange_values, exchange_gradients
# says: "exchange_values": "contiguous"

# %% edit="exchange"
# replace
        dist.all_to_all_single(out, rows.contiguous(), recv, send, group=group)
# by
        dist.all_to_all_single(out, rows, recv, send, group=group)
