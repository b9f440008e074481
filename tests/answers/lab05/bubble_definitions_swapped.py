# kind: wrong
# about: The bubble over the ideal where the share of the total is asked for, and the other way round.
# loses: bubble_both
# says: "bubble_both": "the wrong way round"

# %% solution="bubble"
def bubble(p, m, v=1):
    return (p - 1) / (m * v), (p - 1) / (m * v + p - 1)
