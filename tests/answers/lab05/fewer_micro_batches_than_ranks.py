# kind: wrong
# about: The warm-up is not capped by m: with m < p it runs micro-batches that do not exist (P05).
# loses: one_f_one_b_order
# says: "one_f_one_b_order": "there is only micro-batch 0"

# %% solution="one_f_one_b"
def one_f_one_b(p: int, m: int) -> list[list[tuple[str, int, int]]]:
    schedule = []
    for rank in range(p):
        warm_up = p - 1 - rank
        actions = [("F", rank, k) for k in range(warm_up)]
        for k in range(m - warm_up):
            actions += [("F", rank, warm_up + k), ("B", rank, k)]
        schedule.append(actions + [("B", rank, k) for k in range(m - warm_up, m)])
    return schedule
