# kind: wrong
# about: Takes every stage to be as slow as the slowest.
# loses: step_seconds_value
# says: "step_seconds_value": "wanted 17"

# %% solution="step_seconds"
def step_seconds(forward, backward, m):
    return (m + len(forward) - 1) * (max(forward) + max(backward))
