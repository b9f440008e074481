# kind: wrong
# about: All choices of a rank come before those of the next rank.
# loses: capacity_over_ranks, moe_dropped, two_steps
# says: "capacity_over_ranks": "first choices of all ranks come first"

# %% edit="drop_over_capacity"
# replace
    before = total.cumsum(0) - total  # earlier choices of everybody
    before = before + sum(everyones[: dist.get_rank(group)])  # the same choice, of ranks before this one
# by
    before = own.cumsum(0) - own
    before = before + sum(everyone.sum(0) for everyone in everyones[: dist.get_rank(group)])
# replace
    total = sum(everyones)
# by
