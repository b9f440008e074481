# kind: wrong
# about: Hands a non-contiguous gradient to gloo.
# loses: exchange_values, exchange_gradients
# says: "exchange_gradients": "contiguous"

# %% edit="exchange"
# replace
        dist.all_to_all_single(out, grad.contiguous(), recv, send, group=group)
# by
        dist.all_to_all_single(out, grad, recv, send, group=group)
