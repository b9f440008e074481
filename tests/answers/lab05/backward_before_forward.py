# kind: wrong
# about: On the last rank the backward is listed before its forward.
# loses: one_f_one_b_order, one_f_one_b_in_flight
# says: "one_f_one_b_order": "waits at 1B0 for 1F0, which comes later in its own list"

# %% solution="one_f_one_b"
def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    schedule = []
    for rank in range(p):
        warm_up = min(m, p - 1 - rank)
        actions = [("F", rank, k) for k in range(warm_up)]
        for k in range(m - warm_up):
            pair = [("F", rank, warm_up + k), ("B", rank, k)]
            actions += pair if warm_up else pair[::-1]
        schedule.append(actions + [("B", rank, k) for k in range(m - warm_up, m)])
    return schedule
