# kind: right
# about: Interleaved by two queues of work and a limit on what is in flight.
# loses:

# %% solution="interleaved"
def interleaved(p, m, v):
    def queue(rank, chunks):
        return [(rank + c * p, g + k) for g in range(0, m, p) for c in chunks for k in range(p)]

    schedule = []
    for rank in range(p):
        forward, backward = queue(rank, range(v)), queue(rank, range(v - 1, -1, -1))
        room, actions, flying = 2 * (p - 1 - rank) + (v - 1) * p + 1, [], 0
        while backward:
            if forward and flying < room:
                actions.append(("F", *forward.pop(0)))
                flying += 1
            else:
                actions.append(("B", *backward.pop(0)))
                flying -= 1
        schedule.append(actions)
    return schedule
