# kind: right
# about: One all-to-all there and back for each of the rank's experts: nothing has to be sorted on arrival.

# %% solution="moe_layer"
def moe_layer(x, router, experts, k, capacity=None, renormalise=True, group=None):
    ids, weights = route(F.linear(x, router), k, renormalise)
    if capacity is not None:
        ids = drop_over_capacity(ids, len(router), capacity, group)
    send, recv = count_rows(ids, len(router), group)
    ranks, width = send.shape
    y = torch.zeros_like(x)
    for e in range(width):
        found = [(ids == e + rank * width).nonzero(as_tuple=True) for rank in range(ranks)]
        tokens = torch.cat([pair[0] for pair in found])
        share = weights[tokens, torch.cat([pair[1] for pair in found])]
        rows = exchange(x[tokens], send[:, e].tolist(), recv[:, e].tolist(), group)
        done = expert(rows, *(experts[name][e] for name in EXPERT))
        back = exchange(done, recv[:, e].tolist(), send[:, e].tolist(), group)
        y = y + torch.zeros_like(x).index_add(0, tokens, back * share[:, None])
    return y
