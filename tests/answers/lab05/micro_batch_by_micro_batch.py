# kind: wrong
# about: With several stages on a rank each micro-batch goes through all of them before the next: it stalls.
# loses: gpipe_order
# says: "gpipe_order": "gpipe (p = 2, m = 2, v = 2): with F costing 1 and B costing 2 it takes"

# %% solution="gpipe"
def gpipe(p, m, v=1):
    return [
        [("F", s, k) for k in range(m) for s in range(r, p * v, p)]
        + [("B", s, k) for k in range(m) for s in reversed(range(r, p * v, p))]
        for r in range(p)
    ]
