# kind: wrong
# about: The batch need not divide.
# loses: best_split_legal, best_split_cheapest
# says: "best_split_legal": "does not divide the batch"

# %% edit="best_split"
# replace
        splits = [Split(dp, pp, tp, m) for m in range(1, job.batch // dp + 1) if job.batch % (dp * m) == 0]
# by
        splits = [Split(dp, pp, tp, m) for m in range(1, job.batch // dp + 1)]
