# kind: wrong
# about: 1F1B with p - 2 - r warm-up forwards: fewer in flight, longer idle.
# loses: one_f_one_b_order
# says: "one_f_one_b_order": "and 15 is possible"

# %% solution="one_f_one_b"
def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    schedule = []
    for rank in range(p):
        warm_up = max(0, min(m, p - 2 - rank))
        actions = [("F", rank, k) for k in range(warm_up)]
        for k in range(m - warm_up):
            actions += [("F", rank, warm_up + k), ("B", rank, k)]
        schedule.append(actions + [("B", rank, k) for k in range(m - warm_up, m)])
    return schedule
