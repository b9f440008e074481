# kind: right
# about: A token goes once to each rank that has one of its experts, whose results are added there.

# %% solution="moe_layer"
def moe_layer(x, router, experts, k, capacity=None, renormalise=True, group=None):
    total = len(router)
    ids, weights = route(x @ router.t(), k, renormalise)
    if capacity is not None:
        ids = drop_over_capacity(ids, total, capacity, group)
    send, recv = count_rows(ids, total, group)
    ranks, width = send.shape
    matrix = torch.zeros(len(x), total + 1).scatter_add(1, ids.where(ids >= 0, total), weights)[:, :total]
    matrix = matrix.view(len(x), ranks, width)
    needed = torch.stack([(ids // width == rank).any(1) for rank in range(ranks)], 1)
    out_sizes = needed.sum(0)
    in_sizes = torch.empty_like(out_sizes)
    dist.all_to_all_single(in_sizes, out_sizes, group=group)
    out_sizes, in_sizes = out_sizes.tolist(), in_sizes.tolist()
    found = [needed[:, rank].nonzero()[:, 0] for rank in range(ranks)]
    tokens = torch.cat(found)
    shares = torch.cat([matrix[own, rank] for rank, own in enumerate(found)])
    packed = exchange(torch.cat([x[tokens], shares], 1), out_sizes, in_sizes, group)
    rows, shares = packed.split([x.shape[1], width], 1)
    done = torch.zeros_like(rows)
    for e in range(width):
        mine = shares[:, e].detach().nonzero()[:, 0]
        result = expert(rows[mine], *(experts[name][e] for name in EXPERT))
        done = done.index_add(0, mine, result * shares[mine, e, None])
    return torch.zeros_like(x).index_add(0, tokens, exchange(done, in_sizes, out_sizes, group))
