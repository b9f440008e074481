# kind: wrong
# about: Runs all forwards, then all backwards, whatever the schedule says.
# loses: run_one_f_one_b, run_interleaved, run_memory
# says: "run_one_f_one_b": "ran 0F2 where its list says 0B0"
# says: "run_memory": "held the activations of 6 micro-batches at once"

# %% edit="run_schedule"
# replace
    for op, stage, k in schedule[rank]:
# by
    for op, stage, k in sorted(schedule[rank], key=lambda action: action[0] == "B"):
