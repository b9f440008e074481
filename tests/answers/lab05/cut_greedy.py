# kind: wrong
# about: Fills a stage until it has its fair share, then goes on to the next.
# loses: cut_stages_best
# says: "cut_stages_best": "is possible"

# %% solution="cut_stages"
def cut_stages(costs, p):
    bounds, share, filled = [0], sum(costs) / p, 0
    for layer, cost in enumerate(costs):
        left, pieces_left = len(costs) - layer, p - len(bounds)
        if layer > bounds[-1] and pieces_left and (filled + cost > share or left == pieces_left):
            bounds.append(layer)
            filled = 0
        filled += cost
    return bounds + [len(costs)]
