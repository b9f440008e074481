# kind: right
# about: GPipe goes backward from the last micro-batch, as its paper draws it.
# loses:

# %% solution="gpipe"
def gpipe(p, m, v=1):
    schedule = []
    for rank in range(p):
        forward = [(s, k) for s in range(rank, p * v, p) for k in range(m)]
        schedule.append([("F", *work) for work in forward] + [("B", *work) for work in reversed(forward)])
    return schedule
