# kind: wrong
# about: Moves the rows over all ranks, whatever group was passed.
# loses: two_steps

# %% edit="moe_layer"
# replace
    rows = exchange(x[tokens], out_sizes, in_sizes, group)
# by
    rows = exchange(x[tokens], out_sizes, in_sizes)
# replace
    results = exchange(done[order.argsort()], in_sizes, out_sizes, group)
# by
    results = exchange(done[order.argsort()], in_sizes, out_sizes)
