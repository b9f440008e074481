# kind: wrong
# about: Even ranks go backward from micro-batch 0, odd ranks from the last: it runs, and stalls.
# loses: gpipe_order
# says: "gpipe_order": "and 9 is possible"

# %% solution="gpipe"
def gpipe(p, m, v=1):
    order, schedule = list(range(m)), []
    for rank in range(p):
        stages = range(rank, p * v, p)
        back = order if rank % 2 else order[::-1]
        schedule.append([("F", s, k) for s in stages for k in order] + [("B", s, k) for s in reversed(stages) for k in back])
    return schedule
