# kind: right
# about: The critical path: down to the slowest stage, m times through it, and on.
# loses:

# %% solution="step_seconds"
def step_seconds(forward, backward, m):
    total = 0
    for costs in (forward, backward):
        slow = costs.index(max(costs))
        total += sum(costs[:slow]) + m * costs[slow] + sum(costs[slow + 1 :])
    return float(total)
