# kind: wrong
# about: Looks for the slowest stage by F and B together, though they may differ.
# loses: step_seconds_value
# says: "step_seconds_value": "is 51 s, wanted 55"

# %% solution="step_seconds"
def step_seconds(forward, backward, m):
    both = [f + b for f, b in zip(forward, backward)]
    return sum(both) + (m - 1) * max(both)
