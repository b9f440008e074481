# kind: wrong
# about: Divides the whole share by v, not the idle time.
# loses: bubble_both
# says: "bubble_both": "bubble(4, 8, 2), idle share of the total"

# %% solution="bubble"
def bubble(p, m, v=1):
    return (p - 1) / (m + p - 1) / v, (p - 1) / m / v
