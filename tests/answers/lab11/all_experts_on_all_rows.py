# kind: wrong
# about: Each expert works on all rows of its rank, and most results are thrown away.
# loses: moe_work
# says: "moe_work": "Is there work for rows of other"

# %% edit="moe_layer"
# replace
    done = torch.cat([expert(part, *(experts[name][e] for name in EXPERT)) for e, part in enumerate(parts)])
# by
    done = sum((local == e)[:, None] * expert(rows, *(experts[name][e] for name in EXPERT)) for e in range(recv.shape[1]))
# replace
    order = local.argsort(stable=True)
    parts = rows[order].split(recv.sum(0).tolist())
# by

# replace
    results = exchange(done[order.argsort()], in_sizes, out_sizes, group)
# by
    results = exchange(done, in_sizes, out_sizes, group)
