# kind: wrong
# about: Keeps every micro-batch's output until the end of the step (P15).
# loses: run_memory
# says: "run_memory": "None was let go of before the end of the step"

# %% edit="run_schedule"
# replace
        x, y = held.pop((stage, k))
# by
        x, y = held[stage, k]
