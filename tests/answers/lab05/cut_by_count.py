# kind: wrong
# about: Cuts by the number of layers.
# loses: cut_stages_best
# says: "cut_stages_best": "6, and 5 is possible. This is a cut by the number of layers."

# %% solution="cut_stages"
def cut_stages(costs, p):
    return [round(s * len(costs) / p) for s in range(p + 1)]
