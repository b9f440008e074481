# kind: right
# about: Finds the least maximum by trying limits, then fills from the left.
# loses:

# %% solution="cut_stages"
def cut_stages(costs, p):
    def fill(limit):
        bounds, piece = [0], 0.0
        for layer, cost in enumerate(costs):
            if layer > bounds[-1] and (piece + cost > limit + 1e-12 or len(costs) - layer == p - len(bounds)):
                bounds.append(layer)
                piece = 0.0
            piece += cost
        return bounds + [len(costs)]

    sums = sorted({sum(costs[a:b]) for a in range(len(costs)) for b in range(a + 1, len(costs) + 1)})
    for limit in sums:
        if limit >= max(costs):
            bounds = fill(limit)
            if len(bounds) == p + 1 and max(sum(costs[a:b]) for a, b in zip(bounds, bounds[1:])) <= limit + 1e-9:
                return bounds
