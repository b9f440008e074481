# kind: wrong
# about: 1F1B with p - r warm-up forwards instead of p - 1 - r.
# loses: one_f_one_b_in_flight
# says: "one_f_one_b_in_flight": "One warm-up forward too many?"

# %% solution="one_f_one_b"
def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    schedule = []
    for rank in range(p):
        warm_up = min(m, p - rank)
        actions = [("F", rank, k) for k in range(warm_up)]
        for k in range(m - warm_up):
            actions += [("F", rank, warm_up + k), ("B", rank, k)]
        schedule.append(actions + [("B", rank, k) for k in range(m - warm_up, m)])
    return schedule
