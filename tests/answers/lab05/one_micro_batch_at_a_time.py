# kind: wrong
# about: Finishes a micro-batch before it begins the next.
# loses: gpipe_order
# says: "gpipe_order": "has a B among its first 2 actions; all F come first"

# %% solution="gpipe"
def gpipe(p, m, v=1):
    return [[(op, s, k) for k in range(m) for op in "FB" for s in range(r, p * v, p)[:: 1 if op == "F" else -1]] for r in range(p)]
