# kind: right
# about: Builds 1F1B without a formula: forward while there is room, else backward; lists for actions.
# loses:

# %% solution="one_f_one_b"
def one_f_one_b(p, m):
    schedule = []
    for rank in range(p):
        actions, begun, done = [], 0, 0
        while done < m:
            if begun < m and begun - done < p - rank:
                actions.append(["F", rank, begun])
                begun += 1
            else:
                actions.append(["B", rank, done])
                done += 1
        schedule.append(actions)
    return schedule
