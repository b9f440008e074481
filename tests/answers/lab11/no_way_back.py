# kind: wrong
# about: The plain all-to-all: autograd sees nothing of it.
# loses: exchange_gradients, moe_gradients, moe_dropped, moe_traffic, two_steps
# says: "exchange_gradients": "no gradient came back through the all-to-all"
# says: "moe_gradients": "nothing came back through the experts"

# %% solution="exchange"
def exchange(rows, send, recv, group=None):
    out = rows.new_empty(sum(recv), *rows.shape[1:])
    dist.all_to_all_single(out, rows.detach().contiguous(), recv, send, group=group)
    return out
