# kind: wrong
# about: The backward always takes the oldest micro-batch, whatever the schedule says (P07).
# loses: run_one_f_one_b
# says: "run_one_f_one_b": "ran 0B0 where its list says 0B2"

# %% edit="run_schedule"
# replace
        x, y = held.pop((stage, k))
# by
        x, y = held.pop(next(key for key in held if key[0] == stage))
